"""A requested strategy -> the layout it means for a job, with gaps filled and sums checked."""

from dataclasses import replace

from planner.core.errors import InvalidInputError, did_you_mean
from planner.domain.framework import Framework
from planner.domain.job import Job
from planner.domain.model import Model
from planner.domain.recompute_modules import number_of
from planner.domain.strategy import CHOICES, Layout
from planner.request.family import definite, family_fields
from planner.request.remarks import Assumption
from planner.request.sections import StrategyRequest
from planner.search.limits import check
from planner.search.local_sgd import local_sgd
from planner.search.pinned_fields import (
    AtLeast,
    PinnedFields,
    needs_divided_tokens,
    simplest_layout,
)

_RANKS_OF_DATA = "data_parallel_size"
_SIZES_OF_DATA = {_RANKS_OF_DATA, "data_parallel_replicate_size", "data_parallel_shard_size"}


def requested_layout(strategy_request: StrategyRequest | None, job: Job) -> Layout:
    """Return the one layout to estimate; what the request leaves open is the simplest choice.

    A mixture divided by tensors has sequence parallelism where nothing else runs, whatever the request says of it.

    Raises:
        UnsupportedError: a degree or technique that is not estimated for such a model or framework.
        InvalidInputError: sizes do not multiply to the world size, do not divide the model, or the
            batch does not split.
    """
    pinned = definite(pinned_fields(strategy_request), job.cluster.nodes)
    if needs_divided_tokens(job.framework, job.model, pinned):
        pinned = {**pinned, "sequence_parallel": True}
    strategy = simplest_layout(job, pinned)
    check(job, strategy)
    if isinstance(pinned.get("synchronize_every"), AtLeast):
        return replace(strategy, synchronize_every=max(2, local_sgd(job, strategy).interval))
    return strategy


def divided_tokens(
    wanted: StrategyRequest | None, framework: Framework, model: Model
) -> list[Assumption]:
    """Return what is said of sequence parallelism that a layout has though the request says none."""
    given = wanted.model_dump(exclude_unset=True) if wanted else {}
    if given.get("sequence_parallel") or not needs_divided_tokens(framework, model, given):
        return []
    said = ", false as asked would not run" if "sequence_parallel" in given else ""
    text = f"sequence_parallel, as {framework.name} trains mixtures with tensor parallelism{said}"
    return [Assumption(text=text, field="strategy.sequence_parallel")]


def pinned_fields(strategy_request: StrategyRequest | None) -> PinnedFields:
    """Return the fields that were given, which a suggestion must hold fixed.

    A family says what it does not name: `ddp` is every other size 1. What is given beside it wins.

    Raises:
        InvalidInputError: a family or a choice that there is not.
    """
    given = strategy_request.model_dump(exclude_unset=True) if strategy_request else {}
    family, is_dealt = given.pop("family", None), given.pop("pipeline_layout", None)
    if is_dealt:
        given.setdefault("virtual_pipeline_size", 1)
    fields = {name: _value(name, value) for name, value in given.items() if value is not None}
    return {**_beside(family_fields(family), fields), **fields} if family else fields


def _beside(family: PinnedFields, given: PinnedFields) -> PinnedFields:
    """Return what a family pins beside given sizes of data parallelism, which say more than its name.

    Their product alone does not say how many of them are replicas, and a size does not say that
    another may be 1: what makes hsdp of shards stays.
    """
    said = given.keys() & _SIZES_OF_DATA
    is_product = said == {_RANKS_OF_DATA}
    dropped = {
        name
        for name in (family.keys() & _SIZES_OF_DATA if said else ())
        if name in {*said, _RANKS_OF_DATA} or not (is_product or isinstance(family[name], AtLeast))
    }
    return {name: value for name, value in family.items() if name not in dropped}


def _value(field: str, value: int | str | list[str]) -> int:
    """Return what a field of a strategy holds for the contract's value.

    Raises:
        InvalidInputError: a choice that there is not.
    """
    if isinstance(value, list):
        return number_of(value)
    if not isinstance(value, str):
        return value
    kind, name = CHOICES[field], value
    if name not in kind.names():
        raise InvalidInputError(
            f"no {field.replace('_', ' ')} is called {name!r}",
            hint=did_you_mean(name, kind.names()) or f"one of {', '.join(kind.names())}",
            field=f"strategy.{field}",
        )
    return kind(name)
