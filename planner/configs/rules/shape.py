"""Rules about sizes: what must divide the heads, the layers, the GPUs and the batch."""

from collections.abc import Iterator

from planner.configs.found import (
    ACCELERATE,
    LAUNCH,
    MEGATRON,
    TORCHTITAN,
    TRAINER,
    Found,
    Setting,
    Setup,
)
from planner.configs.meaning import LENGTH, learned_positions, world
from planner.configs.rules.base import Fault, set_to
from planner.configs.sizes import Sizes, size, sizes
from planner.core.units import format_gpus

_MOST = 4096
"""Heads or layers of a model whose divisors are listed."""


def heads_do_not_divide(setup: Setup) -> Iterator[Fault]:
    """The tensor parallel or Ulysses size does not divide the model's attention heads."""
    for each in sizes(setup):
        heads, groups = _heads(setup, each.found)
        for setting in (each.tensor, each.sequence):
            degree = size(setting)
            if setting is None or heads is None or degree <= 1:
                continue
            fits = heads % degree == 0 and (groups % degree == 0 or degree % groups == 0)
            if not fits:
                right = [
                    n
                    for n in range(1, heads + 1)
                    if heads % n == 0 and (groups % n == 0 or n % groups == 0)
                ]
                near = max((n for n in right if n < degree), default=1)
                which = f"{heads} heads" if heads % degree else f"{groups} key-value heads"
                yield Fault(
                    at=setting,
                    message=f"{setting.name} {degree} does not divide {which}",
                    hint=f"one of {', '.join(map(str, right[:12]))}",
                    edit=set_to(setting, str(near)),
                )


def _heads(setup: Setup, found: Found) -> tuple[int | None, int]:
    said = found.whole("num_attention_heads")
    if said and 0 < said <= _MOST:
        groups = found.whole("num_query_groups") or said
        return said, groups if 0 < groups <= said else said
    if setup.model is None:
        return None, 1
    kept = [each.attention for each in setup.model.blocks if each.attention is not None]
    if not kept:
        return None, 1
    return kept[0].num_heads, kept[0].num_key_value_heads


def layers_do_not_divide(setup: Setup) -> Iterator[Fault]:
    """The pipeline's stages do not divide the layers."""
    for each in sizes(setup):
        layers = each.found.whole("num_layers")
        if each.found.kind != MEGATRON or layers is None or each.pipeline is None:
            continue
        if not 0 < layers <= _MOST:
            continue
        uneven = (
            "decoder_first_pipeline_num_layers",
            "decoder_last_pipeline_num_layers",
            "pipeline_model_parallel_layout",
            "account_for_embedding_in_pipeline_split",
            "account_for_loss_in_pipeline_split",
        )
        stages = size(each.pipeline)
        if layers % stages and not any(each.found.get(name) for name in uneven):
            right = [n for n in range(1, layers + 1) if layers % n == 0]
            near = max(n for n in right if n < stages or n == 1)
            yield Fault(
                at=each.pipeline,
                message=f"{stages} stages do not divide {layers} layers",
                hint=f"one of {', '.join(map(str, right[:8]))}",
                edit=set_to(each.pipeline, str(near)),
            )


def sizes_do_not_fill_the_gpus(setup: Setup) -> Iterator[Fault]:
    """The parallel sizes do not multiply to the processes."""
    is_one_branch = any(each.get("branch") for each in setup.of(LAUNCH))
    ranks = None if is_one_branch else world(setup)
    for each in sizes(setup):
        if ranks is None or not each.given or each.is_unread:
            continue
        product = each.model_parallel
        kind = each.found.kind
        is_open = kind not in {TORCHTITAN, ACCELERATE, LAUNCH}
        if kind == TORCHTITAN:
            is_open = each.shards is None or each.shards.whole == -1
        if kind == TRAINER:  # axolotl takes what is left for the one that is not given
            is_open = each.shards is None or each.replicas is None
        if size(each.sequence) > 1 and not is_open:
            continue
        whole = product * size(each.replicas) * size(each.shards)
        is_right = ranks % whole == 0 if is_open else ranks == whole
        if not is_right and not (kind in {ACCELERATE, LAUNCH} and whole == 1):
            names = " x ".join(f"{one.name} {one.whole}" for one in each.given if size(one) > 1)
            yield Fault(
                at=each.given[0],
                message=f"{names} is {whole}, which {'does not divide' if is_open else 'is not'} {format_gpus(ranks)}",
                hint=f"sizes whose product {'divides' if is_open else 'is'} {ranks}",
            )


def global_batch_does_not_divide(setup: Setup) -> Iterator[Fault]:
    """The global batch is no multiple of micro-batch x data-parallel ranks."""
    ranks = world(setup)
    for each in sizes(setup):
        if ranks is None or each.is_unread or ranks % each.model_parallel:
            continue
        total, micro = _batches(each)
        at_once = (micro.whole or 0 if micro else 0) * (ranks // each.model_parallel)
        if total is None or total.whole is None or at_once <= 0 or total.whole <= 0:
            continue
        if total.whole % at_once:
            near = max(1, round(total.whole / at_once)) * at_once
            yield Fault(
                at=total,
                message=f"{total.name} {total.whole} is no multiple of {micro.whole if micro else 1} x {ranks // each.model_parallel} data-parallel ranks",
                hint=str(near),
                edit=set_to(total, str(near)),
            )


def _batches(each: Sizes) -> tuple[Setting | None, Setting | None]:
    if each.found.kind == MEGATRON:
        return each.found.get("global_batch_size"), each.found.get("micro_batch_size")
    return each.found.get("training.global_batch_size"), each.found.get("training.local_batch_size")


def micro_batches_are_fewer_than_stages(setup: Setup) -> Iterator[Fault]:
    """A pipeline has more stages than micro-batches in a step."""
    ranks = world(setup)
    for each in sizes(setup):
        stages = size(each.pipeline)
        if each.pipeline is None or stages <= 1 or each.is_unread:
            continue
        micro_batches = _micro_batches(each, ranks)
        if micro_batches is not None and 0 < micro_batches < stages:
            yield Fault(
                at=each.pipeline,
                message=f"{stages} stages, but {micro_batches} micro-batch{'es' if micro_batches > 1 else ''} in a step",
                hint="at least as many micro-batches as stages, better four times",
            )


def _micro_batches(each: Sizes, ranks: int | None) -> int | None:
    if each.found.kind == TORCHTITAN:
        local = each.found.whole("training.local_batch_size")
        return (
            None
            if local is None
            else local // (each.found.whole("parallelism.pipeline_parallel_microbatch_size") or 1)
        )
    total, micro = _batches(each)
    if ranks is None or total is None or micro is None or not micro.whole or total.whole is None:
        return None
    data = max(1, ranks // each.model_parallel)
    return total.whole // (micro.whole * data)


def sequence_exceeds_positions(setup: Setup) -> Iterator[Fault]:
    """The sequence length exceeds the positions of the model."""
    positions = learned_positions(setup)
    for said in setup.settings(TRAINER, LENGTH):
        if positions and (said.whole or 0) > positions:
            yield Fault(
                at=said,
                message=f"{said.name} {said.whole} exceeds the {positions} learned positions of the model",
                edit=set_to(said, str(positions)),
            )
    for found in setup.of(MEGATRON):
        length, most = found.get("seq_length"), found.get("max_position_embeddings")
        if (
            length is not None
            and most is not None
            and (length.whole or 0) > (most.whole or length.whole or 0)
        ):
            yield Fault(
                at=length,
                message=f"--seq-length {length.whole} exceeds --max-position-embeddings {most.whole}",
                hint=f"--max-position-embeddings {length.whole}",
                edit=set_to(most, str(length.whole)),
            )


def experts_do_not_divide(setup: Setup) -> Iterator[Fault]:
    """The expert parallel size does not divide the experts."""
    for each in sizes(setup):
        setting, experts = each.expert, each.found.whole("num_experts") or _experts(setup)
        degree = size(setting)
        if setting is None or not experts or not 0 < experts <= _MOST or degree <= 1:
            continue
        if experts % degree:
            ranks = world(setup) or experts
            right = [n for n in range(1, experts + 1) if experts % n == 0 == ranks % n]
            yield Fault(
                at=setting,
                message=f"{setting.name} {degree} does not divide {experts} experts",
                hint=f"one of {', '.join(map(str, right[:12]))}",
                edit=set_to(setting, str(max(n for n in right if n <= degree))),
            )


def _experts(setup: Setup) -> int:
    blocks = setup.model.blocks if setup.model else ()
    most = max((linear.num_experts for each in blocks for linear in each.linears), default=1)
    return most if most > 1 else 0


def sequence_does_not_divide(setup: Setup) -> Iterator[Fault]:
    """The sequence length is no multiple of the tensor parallel size, or of twice the context parallel size."""
    for each in sizes(setup):
        length = each.found.get("training.seq_len")
        context = size(each.context)
        divisor = size(each.tensor) * (2 * context if context > 1 else 1)
        if each.found.kind != TORCHTITAN or length is None or not (length.whole or 0) % divisor:
            continue
        right = max(1, (length.whole or 0) // divisor) * divisor
        yield Fault(
            at=length,
            message=f"seq_len {length.whole} is no multiple of {divisor}, which the parallel sizes ask for",
            hint=str(right),
            edit=set_to(length, str(right)),
        )
