"""How many GPUs: the fewest that do, the cheapest, or as many as a limit allows."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.advice.choice import Contender, best_of_found, contenders, refusal
from planner.advice.plan import ClusterOption, Plan, make_plan
from planner.advice.so_far import best_so_far
from planner.core import deadline
from planner.core.errors import InvalidInputError, NothingFitsError, TookTooLongError
from planner.core.units import format_duration
from planner.domain.job import Job
from planner.search.largest_that_fits import with_gpus
from planner.search.pinned_fields import PinnedFields
from planner.search.search import LateSearchError
from planner.search.training_run import HOUR_SECONDS, training_run

MOST_LAYOUTS = 2**20
"""Ten seconds: when as many were estimated, smaller numbers of GPUs are left out, and it is said."""
_DOUBLED = 4
"""Numbers of GPUs, each twice the one before, that are looked at for the one that would do."""
_LATER = "a later --deadline, or a larger --global-batch-size"
_MOST_GPUS = 2**15
"""No larger number is looked at: no published run had more."""
_TO_PLAN = 2
"""Times its search that the plan of a number of GPUs takes at the most, on the jobs that take longest."""


def plan_within(
    stacks: Sequence[Job],
    pinned: PinnedFields | None,
    objective: str,
    *,
    max_gpus: int | None = None,
    deadline_seconds: float | None = None,
) -> Plan:
    """Return the plan on the best number of GPUs up to the job's own, or to `max_gpus`, and the others.

    Args:
        stacks: on as many GPUs as there are, the same training in each stack that is open.
        pinned: values that every layout must have.
        objective: "gpus" for the fewest, "cost" for the cheapest, else the fastest.
        max_gpus: the most to use; may exceed the job's own.
        deadline_seconds: by when the recipe's tokens must be through.

    Raises:
        InvalidInputError: a deadline without tokens.
        NothingFitsError: on none of the numbers it fits, or is in time.
        CutShortError: somebody waits, and the time was over before all numbers were looked at.
        SoFarError: it was over before the first was.
    """
    job = stacks[0]
    if deadline_seconds and not job.recipe.training_tokens:
        raise InvalidInputError(
            "a deadline needs the length of the run",
            hint="add --tokens N, or --samples and --epochs",
            field="recipe.training_tokens",
        )
    most_gpus = max_gpus or job.cluster.world_size
    found = _look(stacks, most_gpus, pinned or {}, deadline_seconds)
    fitting, unsplit = found.fitting, found.unsplit
    in_time = [(sized, option) for sized, option in fitting if option.is_in_time is not False]
    if not in_time and found.late is not None:
        so_far = None if fitting else best_so_far(found.late, [], pinned or {}, objective)
        raise so_far or TookTooLongError(
            deadline.no_answer(_looked_at(found)), deadline.with_less()
        )
    if not in_time:
        raise (
            unsplit[max(unsplit)]
            if unsplit
            else _no_option(stacks, found, most_gpus, pinned or {}, deadline_seconds)
        )
    (chosen, *rest), _ = min(in_time, key=lambda pair: _rank(objective, pair[1]))
    plan = make_plan(chosen, pinned, "memory" if objective == "memory" else "time", rest)
    plan = replace(
        plan,
        options=tuple(option for _, option in fitting),
        notes=(
            *_not_split(unsplit),
            *(() if found.late else _left_out(found)),
            *(_unpriced(fitting) if objective == "cost" else ()),
        ),
    )
    if found.late:
        raise CutShortError(_looked_at(found), plan)
    return plan


class CutShortError(TookTooLongError):
    """The time was over: a plan of the numbers of GPUs that were looked at, which is not the answer."""

    def __init__(self, looked_at: str, plan: Plan) -> None:
        gpus = plan.job.cluster.world_size
        super().__init__(
            deadline.no_answer(f"{looked_at}; the best so far is {gpus:,} GPUs"),
            hint=deadline.with_less(),
        )
        self.plan = plan


def _looked_at(found: "_Found") -> str:
    return f"{found.looked_at} of {found.looked_at + found.left_out} numbers of GPUs were looked at"


def _unpriced(fitting: list[tuple[Sequence[Job], ClusterOption]]) -> tuple[str, ...]:
    if any(option.usd for _, option in fitting):
        return ()
    cluster = fitting[0][0][0].cluster
    if cluster.instance is None:
        whose, hint = "these GPUs", "; --instance NAME has one"
    else:
        whose, hint = f"{cluster.instance.name} with {cluster.gpu.name}", ""
    return (f"no dated price of {whose} is known: the least GPU time is taken{hint}",)


@dataclass(frozen=True, slots=True)
class _Found:
    """What was seen of numbers of GPUs, in ascending order."""

    fitting: list[tuple[Sequence[Job], ClusterOption]]
    unsplit: dict[int, InvalidInputError]
    """Why others do not split the batch, by their number of GPUs."""
    fewest_gpus: int
    """That were looked at."""
    looked_at: int
    left_out: int
    """Numbers of GPUs below that."""
    late: LateSearchError | None
    """The search that had no time left, where others were left out for want of it."""


def _look(
    stacks: Sequence[Job], most_gpus: int, pinned: PinnedFields, deadline_seconds: float | None
) -> _Found:
    """Return what becomes of the job on numbers of GPUs, the largest first until that took too long."""
    fitting: list[tuple[Sequence[Job], ClusterOption]] = []
    unsplit: dict[int, InvalidInputError] = {}
    looked_at, estimated, slowest = 0, 0, 0.0
    late: LateSearchError | None = None
    sizes = list(_cluster_sizes(stacks[0], most_gpus))
    for size in reversed(sizes):
        sized = [with_gpus(each, *size) for each in stacks]
        try:
            with deadline.sooner(_TO_PLAN * slowest):
                found = list(contenders(sized, pinned))
            if not found:
                _refuse_unsplit(sized, pinned)
        except InvalidInputError as error:
            unsplit[sized[0].cluster.world_size] = error
            looked_at += 1
            continue
        except LateSearchError as error:
            late = error
            break
        looked_at += 1
        option = _option(found, pinned, deadline_seconds)
        if option is not None:
            fitting.append((sized, option))
            slowest = max(slowest, sum(each.result.seconds for each in found))
        estimated += sum(each.result.size for each in found)
        if estimated > MOST_LAYOUTS:
            break
    return _Found(
        fitting=fitting[::-1],
        unsplit=unsplit,
        fewest_gpus=sized[0].cluster.world_size,
        looked_at=looked_at,
        left_out=len(sizes) - looked_at,
        late=late,
    )


def _not_split(unsplit: Mapping[int, InvalidInputError]) -> Iterator[str]:
    """Yield why numbers of GPUs were left out, of those with the same fault the largest with its words."""
    for field in {error.field: None for error in unsplit.values()}:
        most, *others = sorted((n for n in unsplit if unsplit[n].field == field), reverse=True)
        likewise = f", and so are {', '.join(map(str, sorted(others)))}" if others else ""
        error = unsplit[most]
        yield f"{error.message} ({error.hint}): {most} GPUs are left out{likewise}"


def _left_out(found: _Found) -> tuple[str, ...]:
    if not found.left_out:
        return ()
    said = (
        f"fewer than {found.fewest_gpus:,} GPUs were not looked at: from there on up there are over"
        f" {MOST_LAYOUTS:,} layouts; hold a size fixed, such as --tp 8, and there are fewer"
    )
    return (said,)


def _rank(objective: str, option: ClusterOption) -> tuple[float, float]:
    if objective == "gpus":
        return option.gpus, option.step_seconds
    if objective == "cost":
        # Without a price, GPU time: a price would be in proportion to it.
        return option.usd or option.gpu_seconds_per_step, option.gpus
    return option.step_seconds, option.gpus


def _cluster_sizes(job: Job, most_gpus: int) -> Iterator[tuple[int, int]]:
    """Yield GPUs per node and nodes: 1, 2, 4 ... in a node, then 1, 2, 4 ... nodes, and the most."""
    gpus = job.cluster.gpus_per_node
    size = 1
    while size < min(gpus, most_gpus):
        yield size, 1
        size *= 2
    if most_gpus < gpus:
        yield most_gpus, 1
    full_nodes = most_gpus // gpus
    nodes = 1
    while nodes < full_nodes:
        yield gpus, nodes
        nodes *= 2
    if full_nodes:
        yield gpus, full_nodes


def _refuse_unsplit(stacks: Sequence[Job], pinned: PinnedFields) -> None:
    error = refusal(stacks, pinned)
    if isinstance(error, InvalidInputError):
        raise error


def _option(
    found: Sequence[Contender], pinned: PinnedFields, deadline_seconds: float | None
) -> ClusterOption | None:
    if not found:
        return None
    best = best_of_found(found, "time")
    candidate = best.candidate
    if candidate.strategy.offloads_optimizer and "offload" not in pinned:
        return None
    run, cluster = training_run(best.job, candidate.step_time), best.job.cluster
    seconds = float(candidate.step_time.step_seconds)
    hourly = cluster.instance.usd_per_hour if cluster.instance else 0.0
    run_seconds = run.seconds if run else 0.0
    return ClusterOption(
        gpus=cluster.world_size,
        nodes=cluster.nodes,
        step_seconds=seconds,
        gpu_seconds_per_step=seconds * cluster.world_size,
        run_seconds=run_seconds,
        usd=run.usd if run else hourly * cluster.nodes * seconds / HOUR_SECONDS,
        is_in_time=run_seconds <= deadline_seconds if deadline_seconds else None,
        price_date=cluster.instance.price_date if cluster.instance and hourly else "",
    )


def _no_option(
    stacks: Sequence[Job],
    found: _Found,
    most_gpus: int,
    pinned: PinnedFields,
    deadline_seconds: float | None,
) -> NothingFitsError:
    left = "".join(f"; {note}" for note in _left_out(found))
    fastest = min((option.run_seconds for _, option in found.fitting), default=0.0)
    more = _more_gpus(stacks, most_gpus, fastest, pinned, deadline_seconds)
    hint = "shrink the job: a shorter --seq-len, --method lora or --method qlora"
    if more:
        hint = f"--max-gpus {more.gpus} would do"
        hint += f", in {format_duration(more.run_seconds)}" if deadline_seconds else ""
    if more and more.is_in_time is False:
        took = f"{more.gpus:,} take {format_duration(more.run_seconds)}"
        hint = f"more that were tried are not in time either ({took}): {_LATER}"
    if not found.fitting:
        return NothingFitsError(
            f"{stacks[0].model.name} does not fit on any number of GPUs up to {most_gpus:,}{left}",
            hint=hint,
            field="cluster",
        )
    return NothingFitsError(
        f"no number of GPUs up to {most_gpus:,} finishes in {format_duration(deadline_seconds or 0)}:"
        f" the fastest takes {format_duration(fastest)}{left}",
        hint=hint if more else f"no larger number that was tried can run it: {_LATER}",
        field="cluster",
    )


def _more_gpus(
    stacks: Sequence[Job],
    most_gpus: int,
    fastest_seconds: float,
    pinned: PinnedFields,
    deadline_seconds: float | None,
) -> ClusterOption | None:
    """Return the job on more GPUs than there are, where it fits: in time, or the fastest of those that are late.

    As many are tried next as would do if a step took half as long on twice as many.
    """
    cluster, gpus, seconds = stacks[0].cluster, most_gpus, fastest_seconds
    best: ClusterOption | None = None
    for _ in range(_DOUBLED):
        late = seconds / deadline_seconds if deadline_seconds else 1.0
        gpus *= 2 ** max(1, math.ceil(math.log2(max(late, 1.0))))
        gpus = min(gpus, _MOST_GPUS)
        size = cluster.gpus_per_node, max(1, gpus // cluster.gpus_per_node)
        sized = [with_gpus(each, *size) for each in stacks]
        try:
            option = _option(list(contenders(sized, pinned)), pinned, deadline_seconds)
        except (InvalidInputError, LateSearchError):
            option = None
        seconds = option.run_seconds if option else 0.0
        best = min(
            (each for each in (best, option) if each),
            key=lambda each: each.run_seconds,
            default=None,
        )
        if option is not None and option.is_in_time is not False:
            break
    return best
