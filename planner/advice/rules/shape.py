"""Rules about sizes: does the model's shape agree with what was asked, does a pipeline have enough to do?"""

from planner.advice.rules.base import Situation
from planner.advice.rules.sentences import said
from planner.domain.job import Job
from planner.step_time.host import runs_experts_one_by_one
from planner.step_time.terms import StepTerm


def sequence_exceeds_positions(situation: Situation) -> str | None:
    """The sequence is longer than the positions that the model's config names.

    Why: rotary positions beyond those seen in pre-training extrapolate badly; the run works, the
    model may not.

    Instead: keep to max_position_embeddings, or scale the rotary base and train on long sequences.

    Source: Chen et al., Position Interpolation, arXiv:2306.15595, section 2.
    """
    length = situation.job.recipe.sequence_length
    positions = situation.job.model.max_position_embeddings
    if length <= positions:
        return None
    return said("SHP001.long", length=length, positions=positions)


def key_value_heads_are_replicated(situation: Situation) -> str | None:
    """Tensor parallelism has more ranks than the model has key-value heads.

    Why: a rank needs whole heads, so each key-value head is on several ranks, computed and kept as
    often.

    Instead: a tensor parallel size up to the number of key-value heads.

    Source: Megatron-LM core/transformer/attention.py; torch's tensor-parallel plans need the heads
    to divide.
    """
    size = situation.candidate.strategy.tensor_parallel_size
    heads = [p.attention.num_key_value_heads for p in situation.job.model.blocks if p.attention]
    fewest = min(heads, default=size)
    if size <= fewest:
        return None
    return said("SHP003.held", size=size, heads=fewest, times=size // fewest)


def vocabulary_is_padded(situation: Situation) -> str | None:
    """Tensor parallelism does not divide the vocabulary, so that it is padded.

    Why: embeddings and head are divided by rows of the vocabulary, equal shares to every rank.

    Instead: nothing; frameworks pad to a multiple and mask what was added. Checkpoints keep the padding.

    Source: Megatron-LM --make-vocab-size-divisible-by.
    """
    size, vocabulary = (
        situation.candidate.strategy.tensor_parallel_size,
        situation.job.model.vocab_size,
    )
    if size == 1 or not vocabulary % size:
        return None
    padded = -(-vocabulary // size) * size
    return said("SHP002.padded", size=size, vocabulary=vocabulary, padded=padded)


def long_sequences_are_divided(situation: Situation) -> str | None:
    """Context parallelism divides sequences whose activations one GPU does not hold.

    Why: activations grow with the sequence; recompute repeats a third of the work, dividing the
    tokens of a sequence does not.

    Instead: full recompute, where sequences are a few times too long.

    Source: Liu et al., ring attention, arXiv:2310.01889; Dubey et al., Llama 3, arXiv:2407.21783,
    section 3.3.2: 16 ranks share 131,072 tokens.
    """
    size, length = (
        situation.candidate.strategy.context_parallel_size,
        situation.job.recipe.sequence_length,
    )
    if size == 1:
        return None
    return said("SHP004.divided", size=size, length=length, each=length // size)


def experts_stay_together(situation: Situation) -> str | None:
    """The framework deals no experts over ranks: each rank holds, or gathers, all of a layer.

    Why: a token visits few experts, but every rank moves all of them. Where the GPU or the library has no
    kernel for all experts at once, they run one after another; transformers before 5 kept each as a module
    of its own, which ZeRO-3 gathers one by one: 91 s a step were measured where Megatron-LM took 9.6 s.

    Instead: a framework with expert parallelism (--framework megatron), where it has the model.

    Source: modelscope/ms-swift, Megatron-SWIFT's benchmark: Qwen3-30B-A3B on 16 A800; transformers
    integrations/moe.py, grouped_mm_experts_forward.
    """
    job, s = situation.job, situation.candidate.strategy
    if not keeps_experts_together(job):
        return None
    count = max(layer.num_experts for part in job.model.blocks for layer in part.linears)
    moved = "gathers" if s.gathers_twice else "holds"
    together = said("SHP006.together", framework=job.framework.name, moves=moved, experts=count)
    turns = said("SHP006.in_turn") if runs_experts_one_by_one(job) else ""
    return together + turns + said("SHP006.instead")


def keeps_experts_together(job: Job) -> bool:
    """Return whether each of several ranks holds, or gathers, all experts of a layer."""
    is_able = job.framework.capabilities.expert_parallel
    return job.model.has_experts and not is_able and job.cluster.world_size > 1


def experts_are_spread(situation: Situation) -> str | None:
    """Expert parallelism deals the experts over ranks.

    Why: experts are most of the parameters and each token visits few, so sending tokens to them
    moves less than gathering them.

    Instead: ZeRO-3 over the experts, where tokens per step are many and links slow.

    Source: Lepikhin et al., GShard, arXiv:2006.16668; DeepSeek-V3, arXiv:2412.19437, section 3.2.
    """
    size = situation.candidate.strategy.expert_parallel_size
    if size == 1:
        return None
    counts = [layer.num_experts for part in situation.job.model.blocks for layer in part.linears]
    return said("SHP005.spread", experts=max(counts), size=size, each=max(counts) // size)


LARGE_BUBBLE = 0.15
MANY_CHUNKS_PER_STAGE = 32
_COMFORTABLE_CHUNKS = 4


def bubble_is_large(situation: Situation) -> str | None:
    """The stages of the pipeline idle for more than 15 % of the step.

    Why: while it fills and drains, stages wait: (p - 1) / (m + p - 1) of the step with p stages and
    m micro-batches, a v-th of the excess with v chunks on each stage.

    Instead: more micro-batches (smaller ones, or a larger global batch), interleaved chunks, a
    zero-bubble schedule, or fewer stages.

    Source: Huang et al., GPipe, arXiv:1811.06965, section 2.3; Narayanan et al., arXiv:2104.04473,
    section 2.2.
    """
    share = situation.share(StepTerm.PIPELINE_BUBBLE)
    s = situation.candidate.strategy
    if share <= LARGE_BUBBLE:
        return None
    chunks = s.virtual_pipeline_size
    return said(
        "PIP001.idle",
        share=share,
        steps=s.gradient_accumulation_steps,
        stages=s.pipeline_parallel_size,
        chunks=said("PIP001.chunks", chunks=chunks) if chunks > 1 else "",
        schedule=str(s.pipeline_schedule),
    )


def chunks_are_many(situation: Situation) -> str | None:
    """The batch is cut into far more micro-batches than the pipeline needs to stay busy.

    Why: past a few micro-batches per stage the bubble is gone, and smaller ones only make smaller
    matmuls and more launches; one chunk and very many are both inefficient.

    Instead: larger micro-batches, as far as memory allows.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Pipeline Parallelism.
    """
    s = situation.candidate.strategy
    per_stage = s.gradient_accumulation_steps / s.pipeline_parallel_size
    if s.pipeline_parallel_size == 1 or per_stage <= MANY_CHUNKS_PER_STAGE:
        return None
    return said(
        "PIP002.many",
        steps=s.gradient_accumulation_steps,
        each=per_stage,
        fewest=_COMFORTABLE_CHUNKS,
        most=MANY_CHUNKS_PER_STAGE,
    )
