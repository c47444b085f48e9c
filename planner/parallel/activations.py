"""What a micro-batch leaves of a part for backward, and in which numerics it runs. Bytes per rank.

Notation: T = micro_batch_size * sequence_length / context_parallel_size tokens of a micro-batch on
a rank, of pairs twice that; t tensor parallel size; q = t under sequence parallelism, else 1.
"""

from collections.abc import Callable

import numpy as np

from planner.core.remembered import remembered
from planner.core.term import Amount, Truth
from planner.domain.job import Job
from planner.domain.kept import Kept, Numerics, Share
from planner.domain.model import Attention, Part
from planner.domain.strategy import Recompute, Strategy
from planner.parallel import adapters
from planner.parallel.partition import Stage, recomputed_share
from planner.parallel.recomputed_modules import repeats_core_attention, without_freed

_FP8_OF_HALF = 0.5


def tokens(job: Job, s: Strategy) -> Amount:
    """Return T, the tokens of a micro-batch that a rank sees."""
    length = job.recipe.sequences_per_sample * job.recipe.sequence_length
    return s.micro_batch_size * length / s.context_parallel_size


def part_tokens(job: Job, s: Strategy, part: Part) -> Amount:
    """Return the tokens of a micro-batch that a part sees on a rank: its own, or all T.

    T * tokens_per_sequence / sequence_length
    """
    length = job.recipe.sequence_length
    return tokens(job, s) * part.tokens(length) / length


def logits_tokens(job: Job, s: Strategy) -> Amount:
    """Return C, the tokens of a micro-batch whose logits exist at once.

        C = M; with a loss in chunks min(M, chunk_tokens), or M / num_chunks, or
        the power of two from M / ceil(V / H) up, whose logits take what all hidden states take

    Notation: M the tokens that the head sees, all T but where it looks at masked ones alone.
    Source: the framework record's section of the recipe's loss; for the last, Hsu et al., Liger Kernel,
    arXiv:2410.10989, section 3.2, and its ops/fused_linear_cross_entropy.py.
    """
    seen, own = tokens(job, s) * job.model.share_with_logits, job.loss
    if own is None:
        return seen
    if own.chunk_tokens:
        return np.minimum(seen, own.chunk_tokens)
    if own.num_chunks:
        return seen / own.num_chunks
    wider = np.ceil(job.model.vocab_size / job.model.hidden_size)
    rows: Amount = np.exp2(np.ceil(np.log2(np.ceil(seen / wider))))
    return np.minimum(seen, rows)


def sequence_split(s: Strategy) -> Amount:
    """Return q, over how many ranks what lies between the parallel regions is divided."""
    return np.where(s.sequence_parallel, s.tensor_parallel_size, 1)


def gathers_parameters(job: Job, s: Strategy) -> Truth:
    """Return whether ranks hold a share of the parameters and gather the rest when needed."""
    return s.zero_stage >= job.framework.sharding.parameters_sharded_from


def numerics_of(job: Job, s: Strategy) -> Amount:
    """Which numerics each layout computes in: fully_shard computes in the gathered dtype."""
    return np.where(
        gathers_parameters(job, s),
        job.precision.sharded_numerics,
        job.precision.replicated_numerics,
    )


def by_numerics(job: Job, s: Strategy, amount: Callable[[Numerics], Amount]) -> Amount:
    """Evaluate an amount for the numerics that each layout computes in."""
    replicated, sharded = job.precision.replicated_numerics, job.precision.sharded_numerics
    if replicated == sharded:
        return amount(replicated)
    return np.where(gathers_parameters(job, s), amount(sharded), amount(replicated))


@remembered(8)
def kept_per_token(job: Job, s: Strategy, part: Part, numerics: Numerics) -> Amount:
    """Bytes per token that a rank keeps of a part.

        bytes = split / t + between / q + inputs / (1 if the framework keeps them gathered else q)

    Fused attention keeps a log-sum-exp per head; materialised scores keep themselves, and keys and
    values expanded to all heads. Adapters keep their inputs in 16 bit and as gathered.
    """
    has_adapters = job.recipe.lora is not None
    fraction = 1 if has_adapters else job.precision.operand_fraction
    by_share: dict[Share, Amount] = dict.fromkeys(Share, 0.0)
    for kept in part.kept:
        size = adapters.kept_bytes(job, s, part, kept, runs_in(job, part, kept, numerics))
        if kept.is_activation_input and job.recipe.fp8_activation_input:
            size = size * _FP8_OF_HALF
        by_share[kept.share] += size * (fraction if kept.operand_of else 1)
    by_share[Share.INPUT] += adapters.added_bytes(job, s, part)
    split = by_share[Share.SPLIT] + attention_bytes(job, s, part, numerics)
    between = by_share[Share.SEQUENCE] / sequence_split(s)
    is_gathered = job.framework.activations.keeps_gathered_inputs or has_adapters
    gathered = 1 if is_gathered else sequence_split(s)
    return split / s.tensor_parallel_size + between + by_share[Share.INPUT] / gathered


def runs_in(job: Job, part: Part, kept: Kept, numerics: Numerics) -> Numerics:
    """Return the numerics of the operation that keeps something: of norms in one kernel, or of what is spelled out."""
    record = job.framework.activations
    if kept.name in record.spelled_out:
        return min(numerics, Numerics.HALF)
    has_fused_norms = record.fuses_norms or (job.loss is not None and job.loss.fuses_norms)
    is_fused = has_fused_norms and numerics == Numerics.HALF and kept.name in part.vectors
    return Numerics.FUSED if is_fused else numerics


def attention_bytes(job: Job, s: Strategy, part: Part, numerics: Numerics) -> Amount:
    """Bytes per token that attention itself keeps over all heads; of a divided sequence its results twice."""
    each = part.attentions(job.recipe.sequence_length)
    return sum((_of_attention(job, s, a, keys, numerics) for a, keys in each), 0.0)


def _of_attention(
    job: Job, s: Strategy, attention: Attention, num_keys: int, numerics: Numerics
) -> Amount:
    element_bytes = 4 if numerics == Numerics.FP32 else 2
    expanded = 2 * (attention.query_size - attention.key_value_size)
    if not attention.materialises_scores(job.recipe.attention, numerics):
        mask = attention.mask_size(job.recipe.attention, num_keys)
        is_repeated = job.framework.activations.repeats_key_values or (
            mask > 0 and attention.num_key_value_heads > 1
        )
        size = attention.retained_size + (expanded if is_repeated else 0) + mask
        joined = np.where(_attends_in_pieces(job, s), attention.query_size, 0)
        return 4 * attention.num_heads + element_bytes * (size + joined)
    per_score = attention.eager_bytes_per_score
    if job.is_fused and attention.compiled_bytes_per_score:
        per_score = attention.compiled_bytes_per_score
    scores = attention.num_heads * num_keys
    kept: Amount = per_score[min(numerics, len(per_score) - 1)] * scores
    if job.framework.activations.selective_recompute == "attention":
        kept = np.where(repeats_core_attention(s), 0.0, kept)
    return kept + element_bytes * expanded


def _attends_in_pieces(job: Job, s: Strategy) -> Truth:
    """Return whether a rank's queries are from both ends of a sequence: backward needs both results, and they joined."""
    return (job.framework.context_parallel.exchange == "gather") & (s.context_parallel_size > 1)


def part_kept_bytes(job: Job, s: Strategy, part: Part) -> Amount:
    """Bytes that one occurrence of a part keeps for one micro-batch."""
    return part_tokens(job, s, part) * by_numerics(
        job, s, lambda n: kept_per_token(job, s, part, n)
    )


@remembered(8)
def block_retained_bytes(job: Job, s: Strategy, part: Part) -> Amount:
    """Bytes that one occurrence of a block keeps for one micro-batch, given what is recomputed.

        bytes = kept - freed by any of recompute_modules + their checkpoints

    Source: for modules, `planner.models.architectures.pieces`.
    """
    kept = part_kept_bytes(job, s, part)
    if job.framework.activations.selective_recompute == "matmuls" and np.any(
        s.recompute == Recompute.SELECTIVE
    ):
        saved = np.minimum(kept, hidden_state_bytes(job, s) + _matmul_outputs(job, s, part))
        kept = np.where(s.recompute == Recompute.SELECTIVE, saved, kept)
    for left, is_of_set in without_freed(s, part):
        kept = np.where(is_of_set, part_kept_bytes(job, s, left), kept)
    return np.where(s.recompute == Recompute.FULL, _input_bytes(job, s, part), kept)


def _input_bytes(job: Job, s: Strategy, part: Part) -> Amount:
    """Bytes of a block's input: a hidden state of its own tokens, and of its own width where it attends."""
    share = part_tokens(job, s, part) / tokens(job, s)
    wide = part.linears[0].in_features if part.attention else job.model.hidden_size
    return hidden_state_bytes(job, s) * share * wide / job.model.hidden_size


def offloaded_blocks(s: Strategy, stage: Stage) -> Amount:
    """Return how many of a stage's blocks keep what backward needs in host memory."""
    blocks: Amount = np.minimum(s.activation_offload_layers, stage.num_blocks)
    return blocks


def mean_block_bytes(job: Job, s: Strategy, stage: Stage) -> Amount:
    """Return the bytes that a micro-batch leaves in one of a stage's blocks, in the mean of those.

        bytes = sum over kinds (r * retained + (1 - r) * whole) / blocks

    Notation: r the share of the blocks that recompute, whose part is what is retained.
    """
    parts = list(zip(job.model.blocks, stage.blocks, strict=True))
    kept = sum((n * block_retained_bytes(job, s, part) for part, n in parts), 0.0)
    share = recomputed_share(job, s, stage.num_blocks)
    if np.any(share < 1.0):
        whole = sum((n * part_kept_bytes(job, s, part) for part, n in parts), 0.0)
        kept = share * kept + (1.0 - share) * whole
    return kept / np.maximum(1, stage.num_blocks)


def hidden_state_bytes(job: Job, s: Strategy) -> Amount:
    """Return the bytes of one hidden state, which is all that recompute="full" keeps of a block."""
    is_half = job.precision.copy_bytes == 0
    each = job.model.hidden_size * by_numerics(
        job, s, lambda n: 2 if n in {Numerics.HALF, Numerics.FUSED} or is_half else 4
    )
    return tokens(job, s) * each / sequence_split(s)


def _matmul_outputs(job: Job, s: Strategy, part: Part) -> Amount:
    """Bytes that selective recompute by operation saves of a block beside its input.

        bytes = T * (every second matmul's output + attention's output and log-sum-exp
                     + the reduce-scattered outputs of matmuls split by their inputs)

    Matmuls are counted in the order they run, the first one saved; all that lies between them is
    run again in backward. What follows a matmul split by its inputs is whole on every rank until
    it is reduced.
    Source: torchtitan distributed/activation_checkpoint.py, policy of the "op" option.
    Leaves out: the grouped matmuls of routed experts, which are not on its list.
    """
    split = s.tensor_parallel_size
    attention = part.attention
    layers = [layer for layer in part.linears if layer.num_experts == 1]
    elements: Amount = sum(
        layer.out_features / (1 if layer.cuts_inputs else np.minimum(split, layer.most_splits))
        for layer in layers[::2]
    )
    reduced = sum(layer.out_features for layer in layers if layer.cuts_inputs)
    elements = elements + np.where(s.sequence_parallel & (split > 1), reduced / split, 0.0)
    log_sum_exp: Amount = 0.0
    if attention is not None and job.recipe.attention != "eager":
        elements = elements + attention.query_size / split
        log_sum_exp = 4 * attention.num_heads / split
    size = by_numerics(job, s, lambda n: 4 if n == Numerics.FP32 else 2)
    return tokens(job, s) * (size * elements + log_sum_exp)
