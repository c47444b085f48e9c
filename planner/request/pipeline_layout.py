"""How a request deals a model's blocks to pipeline stages: a list, or what counts as a block beside them."""

from collections.abc import Mapping

from planner.catalog import records
from planner.core.errors import InvalidInputError, UnsupportedError
from planner.domain.framework import Framework
from planner.domain.model import Model
from planner.domain.strategy import PipelineSchedule
from planner.request.sections import StrategyRequest

FIELD = "strategy.pipeline_layout"
_BESIDE: Mapping[str, tuple[int, int]] = {"loss-aware": (0, 1), "embedding-and-loss-aware": (1, 1)}
"""What the first and the last stage do beside their blocks, each as long as a block."""
_IN_TURN = {
    PipelineSchedule.ONE_FORWARD_ONE_BACKWARD.value,
    PipelineSchedule.INTERLEAVED.value,
}


def dealt(wanted: StrategyRequest | None, framework: Framework, model: Model) -> tuple[int, ...]:
    """Return the blocks of each chunk of a pipeline, as a request gives them; none where it does not.

    Raises:
        UnsupportedError: the framework, or the schedule, does not deal them so.
        InvalidInputError: the blocks are not the model's, or the stages not the pipeline's.
    """
    layout = wanted.pipeline_layout if wanted else None
    if wanted is None or layout is None:
        return ()
    _check_able(framework, wanted.pipeline_schedule)
    stages, chunks = wanted.pipeline_parallel_size, wanted.virtual_pipeline_size
    if stages == 1:
        raise InvalidInputError(
            "pipeline_layout needs a pipeline, and pipeline_parallel_size is 1",
            hint="give pipeline_parallel_size, and virtual_pipeline_size where a stage has chunks",
            field=FIELD,
        )
    if isinstance(layout, str):
        return tuple(_beside(layout, model.num_blocks, stages * chunks))
    return tuple(_given(layout, model.num_blocks, stages, chunks))


def refuse_layout(wanted: StrategyRequest | None) -> None:
    """Refuse a layout of the pipeline in a question why another strategy was not chosen.

    Raises:
        InvalidInputError: it has one.
    """
    if wanted is not None and wanted.pipeline_layout is not None:
        raise InvalidInputError(
            "--why cannot compare layouts with another pipeline_layout",
            hint="give pipeline_layout with the strategy itself",
            field="why.pipeline_layout",
        )


def _check_able(framework: Framework, schedule: str) -> None:
    if not framework.capabilities.deals_layers:
        every = map(records.framework, records.framework_names())
        able = [each.name for each in every if each.capabilities.deals_layers]
        raise UnsupportedError(
            f"{framework.name} assigns blocks to stages itself, and takes no pipeline_layout",
            hint=f"of {', '.join(able)}: --framework {able[0]}",
            field=FIELD,
        )
    if schedule not in _IN_TURN:
        raise UnsupportedError(
            f"pipeline_layout is estimated for {' and '.join(sorted(_IN_TURN))}, not for {schedule}",
            hint="--schedule 1f1b",
            field=FIELD,
        )


def _beside(layout: str, blocks: int, chunks: int) -> list[int]:
    """Return equal chunks, of which the first and the last are shorter by what they hold besides.

    Source: Megatron-LM core/transformer/transformer_block.py get_num_layers_to_build,
    account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split.
    """
    first, last = _BESIDE[layout]
    each, rest = divmod(blocks + first + last, chunks)
    if rest:
        raise InvalidInputError(
            f"{layout}: {chunks} chunks do not divide {blocks} blocks and {first + last} beside them",
            hint="another number of stages or chunks, or the blocks of each as a list",
            field=FIELD,
        )
    return [each - first, *[each] * (chunks - 2), each - last]


def _given(layout: list[int], blocks: int, stages: int, chunks: int) -> list[int]:
    if len(layout) != stages * chunks:
        raise InvalidInputError(
            f"pipeline_layout has {len(layout)} entries, of {stages} stages x {chunks} chunks",
            hint=f"{stages * chunks} numbers: the first chunk of every stage, then the second",
            field=FIELD,
        )
    if sum(layout) != blocks:
        raise InvalidInputError(
            f"pipeline_layout assigns {sum(layout)} blocks, and the model has {blocks}",
            hint=f"numbers that add up to {blocks}",
            field=FIELD,
        )
    if not all(layout[1:-1]) or not all(sum(layout[stage::stages]) for stage in range(stages)):
        raise InvalidInputError(
            "pipeline_layout leaves a stage without a block",
            hint="at least 1 each; the first and the last chunk of several may have none",
            field=FIELD,
        )
    return layout
