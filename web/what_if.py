"""What else could be asked: choices that each change one thing of a question, and hold the rest."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from planner.advice.plan import Plan
from planner.core.errors import PlannerError
from planner.domain.job import Job
from planner.domain.strategy import STAGES, ZERO_1, Offload
from planner.hardware.mixed_gpus import is_list
from planner.request.schema import Resolved, resolve
from web.form import Question, read_question
from web.packed import packed
from web.permalink import opening, otherwise

_CARDS = ("h100-sxm-80gb", "a100-sxm-80gb", "rtx-4090", "l40s")
"""What most runs are on, as they are sold: one to rent by the node, one to own, one between them."""
_MOST_CARDS = 3
_GPUS = ("gpus_per_node", "nodes")
_GPUS_OF_A_NODE = 8
"""From here on more GPUs are more nodes."""
_METHODS = {"full": "all weights", "lora": "LoRA", "qlora": "QLoRA"}
_FRAMEWORKS = ("torch", "deepspeed", "megatron", "torchtitan")
"""That divide the model in ways of their own; the others run one of these."""
_RANKS = ("data_parallel_size", "data_parallel_replicate_size", "data_parallel_shard_size")
_FOLLOWING = (*_RANKS, "gradient_accumulation_steps")
"""Sizes that follow from the number of GPUs and the batch."""


CHANGE, HELD, LAYOUT = "change", "held", "layout"
"""Parameters of the form of choices: what each says otherwise than the question, what is held whatever is chosen, and
the layout that estimates hold. Each is a query string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One value, and what it says otherwise than the question, as a query string."""

    label: str
    change: str = ""
    """"" for the value of this plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What can be changed, and to which values."""

    name: str
    choices: tuple[Choice, ...]

    @property
    def id(self) -> str:
        """Return what its control is called."""
        return f"if-{self.name.replace(' ', '-').lower()}"


def what_ifs(question: Question, resolved: Resolved, plan: Plan) -> tuple[WhatIf, ...]:
    """Return what can be asked instead; a value that cannot be planned at all is left out."""
    job = resolved.job
    said = {*question.short, *_layout(question, plan), "global_batch_size"}
    asked = _Asked(question=question, batch=job.recipe.global_batch_size, said=frozenset(said))
    groups = {
        "GPUs": _gpus(asked),
        "Card": _cards(asked, job),
        "Sequence": _sequences(asked, job),
        "Batch": _batches(asked, plan),
        "Micro-batch": _micro_batches(asked, plan),
        "Recompute": _recompute(asked, plan),
        "ZeRO stage": _stages(asked, plan),
        "Loss": _losses(asked, job),
        "Method": _methods(asked, job),
        "Framework": _frameworks(asked, job),
    }
    found = {
        name: tuple(choice for choice in choices if choice) for name, choices in groups.items()
    }
    return tuple(
        WhatIf(name=name, choices=choices)
        for name, choices in found.items()
        if any(choice.change for choice in choices)
    )


def beside_choices(question: Question, resolved: Resolved, plan: Plan) -> dict[str, str]:
    """Return what the form of choices sends besides them.

    The batch is held as it was assumed, so that one thing changes; sizes that follow from others are left to follow.
    """
    layout = urlencode(_layout(question, plan))
    batch = urlencode({"global_batch_size": resolved.job.recipe.global_batch_size})
    return {**packed(question.short), LAYOUT: layout, HELD: batch}


def _layout(question: Question, plan: Plan) -> dict[str, str]:
    """Return what the chosen layout says otherwise than the question."""
    s, asked = plan.chosen.strategy, packed(question.short)
    opened = dict(parse_qsl(opening(question, plan, s)))
    of_few = _RANKS if s.data_parallel_size == 1 else ("data_parallel_shard_size",) * s.is_hybrid
    follows = {*_FOLLOWING} - {*of_few}
    said = {name: text for name, text in opened.items() if name not in follows}
    return dict(parse_qsl(otherwise(said, asked)))


def as_chosen(query: Iterable[tuple[str, str]], *, holds_layout: bool = False) -> dict[str, str]:
    """Return what a form asks with what its choices say otherwise, beside which plan if any does.

    Args:
        query: of a form, with choices or without.
        holds_layout: as an estimate does; else a layout is searched.
    """
    said = [(name, text) for name, text in query if text.strip()]
    before = {name: text for name, text in said if name not in {CHANGE, HELD, LAYOUT}}
    changes = [text for name, text in said if name == CHANGE]
    if not holds_layout and not changes:
        return before
    kept = (LAYOUT, HELD) if holds_layout else (HELD,)
    values = dict(before)
    for text in (*(text for name, text in said if name in kept), *changes):
        values |= parse_qsl(text, keep_blank_values=True)
    return values if holds_layout else {**values, "vs": otherwise(before, values)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    question: Question
    batch: int
    said: frozenset[str]
    """What the question, the layout and what is held say: nothing else has to be left out."""

    def choice(self, label: str, changed: Mapping[str, str], gpus: int = 1) -> Choice | None:
        """Return the choice of other values, if they can be planned.

        Args:
            label: what it is called.
            changed: by parameter; "" leaves one out.
            gpus: the batch is held where so many can share it.
        """
        changed = {**({"global_batch_size": ""} if self.batch % gpus else {}), **changed}
        values = {**self.question.short, "global_batch_size": str(self.batch), **changed}
        try:
            resolve(read_question(values.items()).request, allow_paths=False)
        except PlannerError:
            return None
        needed = {name: text for name, text in changed.items() if text or name in self.said}
        return Choice(label=label, change=urlencode(needed))

    def batch_of(self, sequences: int) -> Choice | None:
        """Return as many sequences a step, accumulated as they then are."""
        changed = {"gradient_accumulation_steps": "", "global_batch_size": str(sequences)}
        return self.choice(f"{sequences:,}", changed)

    def says(self, *names: str) -> bool:
        return any(name in self.question.values for name in names)


_Choices = Iterator[Choice | None]


def _gpus(asked: _Asked) -> _Choices:
    """Yield a quarter to four times the GPUs asked: nodes where there are several, else those of the node."""
    if asked.says("max_gpus", "deadline_hours") or asked.question.request.objective in {
        "gpus",
        "cost",
    }:
        return
    cluster = resolve(asked.question.request, allow_paths=False).job.cluster
    nodes, per_node = cluster.nodes, cluster.gpus_per_node
    is_whole = asked.says("instance", "topology") or is_list(asked.question.values.get("gpu", ""))
    by_node = nodes > 1 or is_whole
    for gpus in _around(nodes * per_node):
        if gpus == nodes * per_node:
            yield Choice(label=f"{gpus:,}")
            continue
        are_nodes = by_node or gpus > max(per_node, _GPUS_OF_A_NODE)
        counted, left = divmod(gpus, per_node if are_nodes else 1)
        if not left and counted:
            name = _GPUS[are_nodes]
            said = {each: asked.question.short.get(each, "") for each in _GPUS}
            changed = {**dict.fromkeys((*_FOLLOWING, "max_gpus"), ""), **said, name: str(counted)}
            yield asked.choice(f"{gpus:,}", changed, gpus)


def _around(amount: int) -> list[int]:
    """Return a quarter of an amount to four times it, of which whole ones alone."""
    return [amount // part for part in (4, 2) if amount % part == 0] + [
        amount * times for times in (1, 2, 4)
    ]


def _cards(asked: _Asked, job: Job) -> _Choices:
    if asked.says("instance", "topology") or is_list(asked.question.values.get("gpu", "")):
        return
    yield Choice(label=job.cluster.gpu.name)
    others = [card for card in _CARDS if card != job.cluster.gpu.name]
    for card in others[:_MOST_CARDS]:
        yield asked.choice(card, {"gpu": card})


def _sequences(asked: _Asked, job: Job) -> _Choices:
    """Yield other lengths of a sequence, as many sequences a step."""
    length = job.recipe.sequence_length
    for tokens in _around(length):
        if tokens == length:
            yield Choice(label=f"{length:,}")
        else:
            yield asked.choice(f"{tokens:,}", {"sequence_length": str(tokens)})


def _batches(asked: _Asked, plan: Plan) -> _Choices:
    """Yield other numbers of sequences a step: fewer, where they still fill replicas and stages."""
    layout = plan.chosen.strategy
    for batch in _around(asked.batch):
        shares, left = divmod(batch, int(layout.data_parallel_size))
        if batch == asked.batch:
            yield Choice(label=f"{batch:,}")
        elif batch > asked.batch or (not left and shares >= layout.pipeline_parallel_size):
            yield asked.batch_of(batch)


def _micro_batches(asked: _Asked, plan: Plan) -> _Choices:
    """Yield other micro-batches, which divide the batch as it stands."""
    now = int(plan.chosen.strategy.micro_batch_size)
    share = asked.batch // int(plan.chosen.strategy.data_parallel_size)
    for size in _around(now):
        if size == now:
            yield Choice(label=f"{now:,}")
        elif share % size == 0:
            changed = {"micro_batch_size": str(size), "gradient_accumulation_steps": ""}
            yield asked.choice(f"{size:,}", changed)


def _stages(asked: _Asked, plan: Plan) -> _Choices:
    """Yield the other ZeRO stages of the same division of the model; a host keeps what a stage shares out alone."""
    layout, framework = plan.chosen.strategy, plan.job.framework
    parts = layout.family.split("+")
    now = next((part for part in parts if part in {*STAGES, "hsdp"}), "")
    is_whole = layout.offload != Offload.OPTIMIZER
    least = framework.sharding.parameters_sharded_from if is_whole else ZERO_1
    for name, stage in STAGES.items() if now else ():
        kept = [part for part in parts if stage >= least or part != "offload"]
        family = "+".join(name if part == now else part for part in kept)
        label = f"{stage} ({name})" if not stage else str(stage)
        if name == now:
            yield Choice(label=label)
        else:
            cleared = ("zero_stage", *_RANKS, *(("offload",) if kept != parts else ()))
            yield asked.choice(label, {**dict.fromkeys(cleared, ""), "strategy": family})
    if now == "hsdp":
        yield Choice(label=now)


def _losses(asked: _Asked, job: Job) -> _Choices:
    for name in job.framework.capabilities.losses if job.model.has_token_loss else ():
        if name == job.recipe.loss:
            yield Choice(label=name)
        else:
            yield asked.choice(name, {"loss": name})


_NO_PART = {"recompute_layers": "", "recompute_modules": ""}
"""What says which part recomputes, left out."""


def _recompute(asked: _Asked, plan: Plan) -> _Choices:
    current = str(plan.chosen.strategy.recompute)
    for name in plan.job.framework.capabilities.recompute:
        if name == current:
            yield Choice(label=name)
        else:
            yield asked.choice(name, {**_NO_PART, "recompute": name})


def _methods(asked: _Asked, job: Job) -> _Choices:
    lora = job.recipe.lora
    current = "full" if lora is None else "qlora" if lora.is_quantised else "lora"
    for method, label in _METHODS.items():
        adapters = {"lora_rank": "", "lora_targets": ""} if method == "full" else {}
        if method == current:
            yield Choice(label=label)
        else:
            yield asked.choice(label, {"method": "" if method == "full" else method, **adapters})


def _frameworks(asked: _Asked, job: Job) -> _Choices:
    yield Choice(label=job.framework.name)
    for name in _FRAMEWORKS:
        if name != job.framework.name:
            yield asked.choice(name, {"framework": name, "framework_version": ""})
