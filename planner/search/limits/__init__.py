"""Why a layout cannot run, or why no search proposes it: coded limits over layouts."""

from collections.abc import Sequence

import numpy as np

from planner.core.errors import InvalidInputError, UnsupportedError
from planner.core.term import Column, pick
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import Layout, Table, num_rows, tabulate
from planner.search.limits import abilities, customs, experts, modules, sizes
from planner.search.limits.base import Limit

LIMITS: tuple[Limit, ...] = (
    Limit(code="LAY001", judge=sizes.model_cannot_be_divided, is_hard=True, is_ability=True),
    Limit(code="LAY002", judge=sizes.heads_do_not_divide, is_hard=True),
    Limit(code="LAY003", judge=experts.experts_do_not_divide, is_hard=True),
    Limit(code="LAY029", judge=experts.shares_of_experts_do_not_fit, is_hard=True),
    Limit(code="LAY004", judge=sizes.sequence_does_not_divide, is_hard=True),
    Limit(code="LAY005", judge=sizes.layers_do_not_fill_stages, is_hard=True),
    Limit(code="LAY006", judge=sizes.adapters_are_not_split, is_hard=True, is_ability=True),
    Limit(code="LAY007", judge=sizes.local_sgd_needs_whole_replicas, is_hard=True),
    Limit(code="LAY008", judge=abilities.offload_is_missing, is_hard=True, is_ability=True),
    Limit(code="LAY009", judge=abilities.offload_needs_shards, is_hard=True),
    Limit(code="LAY010", judge=sizes.sizes_do_not_multiply, is_hard=True),
    Limit(code="LAY011", judge=sizes.ddp_shards_nothing, is_hard=True),
    Limit(code="LAY012", judge=sizes.batch_does_not_split, is_hard=True),
    Limit(code="LAY014", judge=sizes.chunks_need_a_pipeline, is_hard=True),
    Limit(code="LAY016", judge=sizes.layers_recompute_nothing, is_hard=True),
    Limit(code="LAY017", judge=sizes.gradients_outlive_their_step, is_hard=True),
    Limit(code="LAY041", judge=abilities.pairs_are_not_divided, is_hard=True, is_ability=True),
    Limit(code="LAY038", judge=modules.modules_are_missing, is_hard=True, is_ability=True),
    Limit(code="LAY019", judge=modules.model_lacks_modules, is_hard=True),
    Limit(code="LAY018", judge=modules.modules_recompute_nothing, is_hard=True),
    Limit(code="LAY028", judge=modules.experts_recompute_while_hidden, is_hard=True),
    Limit(code="LAY013", judge=sizes.key_value_heads_do_not_divide, is_ability=True),
    Limit(code="LAY015", judge=sizes.heads_do_not_divide_over_context, is_ability=True),
    Limit(code="LAY020", judge=customs.tensors_leave_the_node),
    Limit(code="LAY021", judge=customs.tensors_straddle_nodes),
    Limit(code="LAY022", judge=customs.zero_divides_a_pipelines_gradients),
    Limit(code="LAY023", judge=customs.stages_take_turns),
    Limit(code="LAY024", judge=customs.chunks_do_not_interleave),
    Limit(code="LAY025", judge=experts.experts_do_not_spread),
    Limit(code="LAY026", judge=customs.context_pieces_are_short),
    Limit(code="LAY027", judge=customs.put_off_gradients_are_recomputed),
    Limit(code="LAY030", judge=abilities.technique_is_missing, is_ability=True),
    Limit(code="LAY031", judge=abilities.zero_stage_is_missing, is_ability=True),
    Limit(code="LAY032", judge=abilities.schedule_is_missing, is_ability=True),
    Limit(code="LAY033", judge=abilities.sequence_parallelism_is_missing, is_ability=True),
    Limit(code="LAY040", judge=experts.tokens_of_experts_are_whole, is_ability=True),
    Limit(code="LAY034", judge=abilities.hybrid_sharding_is_missing, is_ability=True),
    Limit(code="LAY035", judge=abilities.local_sgd_is_missing, is_ability=True),
    Limit(code="LAY036", judge=abilities.replicas_do_not_go_with_tensors, is_ability=True),
    Limit(code="LAY037", judge=abilities.recompute_is_missing, is_ability=True),
    Limit(code="LAY039", judge=abilities.shares_of_experts_are_given, is_ability=True),
)
"""Hard ones first: what breaks them is not even estimated."""
HARD = tuple(limit for limit in LIMITS if limit.is_hard)
SOFT = tuple(limit for limit in LIMITS if not limit.is_hard)


def legal(job: Job, table: Table) -> Column:
    """Return which layouts of a table break no limit."""
    broken = np.zeros(num_rows(table), dtype=np.bool_)
    for limit in LIMITS:
        broken |= limit.judge(job, table).broken
    return np.logical_not(broken)


def violations(
    job: Job, s: Layout, limits: Sequence[Limit] = LIMITS
) -> tuple[tuple[Limit, Breach], ...]:
    """Return which of the limits one layout breaks, the first that nobody can run first."""
    judged = ((limit, limit.judge(job, s)) for limit in limits)
    return tuple((limit, breach.at(0)) for limit, breach in judged if pick(breach.broken, 0))


def violations_of_each(
    job: Job, layouts: Sequence[Layout]
) -> tuple[tuple[tuple[Limit, Breach], ...], ...]:
    """Return what `violations` does of every layout: judged as one table, but put in words alone."""
    table = tabulate(layouts)
    judged = [(limit, limit.judge(job, table).broken) for limit in LIMITS]
    return tuple(
        tuple((limit, limit.judge(job, s).at(0)) for limit, broken in judged if pick(broken, row))
        for row, s in enumerate(layouts)
    )


def check(job: Job, s: Layout) -> None:
    """Refuse a layout that nobody can run.

    Raises:
        InvalidInputError: sizes do not fit each other, the model or the batch.
        UnsupportedError: it is not estimated for such a model or framework.
    """
    for limit, breach in violations(job, s, HARD):
        kind = UnsupportedError if limit.is_ability else InvalidInputError
        raise kind(breach.reason, hint=breach.advice, field=breach.field)
