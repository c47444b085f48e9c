"""What a pipeline holds beside its stages' own tensors: bytes per rank."""

import numpy as np

from planner.core.term import NOTHING, Amount, Expression, Truth, count, only_where, plain, size
from planner.domain.job import Job
from planner.domain.kept import Numerics
from planner.domain.model import Part
from planner.domain.strategy import Recompute, Strategy
from planner.memory.block_gradients import around_last_matmul, repeats_blocks
from planner.memory.phases import PASSES, PhasedTerm, always
from planner.parallel.activations import by_numerics, hidden_state_bytes, sequence_split, tokens
from planner.parallel.partition import Stage, occurrences, recomputed_share
from planner.parallel.pipeline_schedules import turns


def pipeline_buffers(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Buffers that hidden states and their gradients are received into, one for every micro-batch.

        bytes = T * state * (m * (2v - first - last) - F * (v - first))

    Notation: m micro-batches of a step, F of them in flight; v chunks of a rank; first, last: 1 on the stage that
    receives no hidden states, or no gradients. They are made when the first step begins, and stay; what one rank's
    chunks give each other stays too. What a block keeps of its input is the buffer itself, but where a norm in
    16 bit keeps a copy in fp32: those in flight are among the activations.
    Source: torch.distributed.pipelining PipelineStage (_setup_forward_recv_info, _create_grad_recv_info,
    set_local_fwd_input), PyTorch 2.13; megatron allocates as it receives.
    """
    source = job.framework.pipeline.source
    if not job.framework.pipeline.keeps_buffers:
        return always("pipeline_buffers", NOTHING, source)
    received = 2 * s.virtual_pipeline_size - stage.is_first - stage.is_last
    inputs = stage.in_flight * (s.virtual_pipeline_size - stage.is_first)
    every = s.gradient_accumulation_steps * received
    each = _hidden_states(job, s)
    held = only_where(_is_piped(s), each * plain(every, "receive buffers"))
    apart = plain(
        every - np.where(_keeps_inputs(job, s), inputs, 0.0),
        "receive buffers beside the activations",
    )
    beside = only_where(_is_piped(s), each * apart)
    return PhasedTerm(
        name="pipeline_buffers",
        forward=beside,
        loss=beside,
        last_block=beside,
        first_block=beside,
        outer=held,
        step=held,
        source=source,
    )


def stage_outputs(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """What a stage has handed on, which it holds until its own backward.

        bytes = T * state * F * (v - last - turn)

    Notation: F micro-batches in flight; v chunks of a rank; last: 1 on the stage whose last chunk gives logits; turn:
    1 where a chunk gives to the rank's own next one, among whose inputs it is.
    Source: torch.distributed.pipelining PipelineStage.fwd_cache, PyTorch 2.13; megatron frees it
    (deallocate_pipeline_outputs).
    """
    source = job.framework.pipeline.source
    if not job.framework.pipeline.keeps_buffers:
        return always("stage_outputs", NOTHING, source)
    given = s.virtual_pipeline_size - stage.is_last - turns(s, stage.index)
    each = _hidden_states(job, s) * plain(given, "sent on by each")
    held = only_where(_is_piped(s), each * plain(stage.in_flight, "in flight"))
    return PhasedTerm.during(PASSES, held, name="stage_outputs", source=source)


def arriving_gradients(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Gradients around the last matmul of a stage without a loss, while all of its activations are there.

        bytes = T * (state + e * inputs / t)

    Notation: as in `planner.memory.activations.recomputed_gradients`, which has them where all blocks are run again. On
    the last stage the loss's are more.
    Source: torch.distributed.pipelining, PyTorch 2.13, followed allocation by allocation without a GPU.
    Leaves out: frameworks whose pipelines were not followed.
    """
    source = job.framework.pipeline.source
    if not job.framework.pipeline.keeps_buffers:
        return always("arriving_gradients", NOTHING, source)
    has_blocks: Truth = np.asarray(stage.num_blocks) * (1 - np.asarray(stage.is_last)) > 0
    share = recomputed_share(job, s, stage.num_blocks)
    begins = _is_piped(s) & has_blocks & ~(repeats_blocks(job, s) & (np.asarray(share) >= 1.0))
    return PhasedTerm(
        name="arriving_gradients",
        last_block=only_where(begins, around_last_matmul(job, s)),
        source=source,
    )


def waiting_gradients(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Gradients that weight gradients will be computed from, where those are put off.

        bytes = T * W * (sum over linears of e * out / t + sum over norms of n * width / q + state * v) + T * 4 k * width / q

    Notation: W micro-batches that wait for their weight gradients; e and n bytes of a matmul's and a norm's
    gradient; t, q tensor parallel size and what divides the tokens between its regions; state the gradient of a
    chunk's input; k hidden states of fp32 in the backward of the first block's norm: 5 where it is spelled out, else 2.
    As a backward ends there is one chunk more than before it.
    Source: torch.distributed.pipelining's _backward.py, stage_backward_input, PyTorch 2.13: the gradient of every
    operation with a weight stays, and so does the graph below it.
    Leaves out: embeddings, whose stage does both backwards at once.
    """
    parts = occurrences(job.model, stage)
    if not np.any(stage.waiting):
        return always("waiting_gradients", NOTHING, _SPLIT)
    outputs = sum((n * _output_gradient_bytes(job, s, part) for part, n in parts), 0.0)
    states = hidden_state_bytes(job, s) / tokens(job, s) * s.virtual_pipeline_size
    each = count(tokens(job, s), "tokens") * size(outputs + states, "/token of matmuls and norms")
    before = np.maximum(0.0, stage.waiting - 1 / np.asarray(s.virtual_pipeline_size))
    earlier = only_where(before > 0, each * plain(before, "whose weight gradients are put off"))
    normalising = count(tokens(job, s), "tokens") * size(
        4.0 * _states_of_a_norm(job) * job.model.hidden_size / sequence_split(s), "/token of a norm"
    )
    return PhasedTerm(
        name="waiting_gradients",
        forward=earlier,
        loss=earlier,
        last_block=earlier,
        first_block=only_where(
            stage.waiting > 0,
            each * plain(stage.waiting, "whose weight gradients are put off") + normalising,
        ),
        source=_SPLIT,
    )


def input_gradients(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Gradients of received hidden states that have been given back, and are still there.

        bytes = T * state * max(0, m - F) * (v - first - turn) where weight gradients are put off
        T * state * (1 - first) with one chunk on each rank, once m > F

    Notation: m micro-batches of a step, F of them in flight; v chunks of a rank; first: 1 on the stage that receives
    no hidden states; turn: as in `stage_outputs`, where the gradient is what the other chunk receives.
    Source: torch.distributed.pipelining, PyTorch 2.13: stage_backward_input leaves them at its inputs until
    clear_runtime_states, stage_backward does not, but Schedule1F1B holds what it sent last; interleaved ones
    hold none.
    """
    source = job.framework.pipeline.source
    if not job.framework.pipeline.keeps_buffers:
        return always("input_gradients", NOTHING, source)
    done = np.maximum(0.0, s.gradient_accumulation_steps - stage.in_flight)
    each = s.virtual_pipeline_size - stage.is_first - turns(s, stage.index)
    of_one = np.where(np.asarray(s.virtual_pipeline_size) == 1, np.minimum(1.0, done), 0.0)
    given = np.where(stage.waiting > 0, done * each, of_one * (1 - stage.is_first))
    held = _hidden_states(job, s) * plain(given, "given back")
    left = only_where(_is_piped(s) & (given > 0), held)
    return PhasedTerm.during((*PASSES, "outer"), left, name="input_gradients", source=source)


def _hidden_states(job: Job, s: Strategy) -> Expression:
    state = size(hidden_state_bytes(job, s) / tokens(job, s), "/token")
    return count(tokens(job, s), "tokens") * state


def _keeps_inputs(job: Job, s: Strategy) -> Truth:
    copies = any(
        kept.name in part.vectors and not kept.is_normalised_in_fp32
        for part in job.model.blocks
        for kept in part.kept
    )
    in_half = by_numerics(job, s, lambda n: float(n == Numerics.HALF))
    found: Truth = (in_half < 1) | (not copies) | (np.asarray(s.recompute) == Recompute.FULL)
    return found


def _output_gradient_bytes(job: Job, s: Strategy, part: Part) -> Amount:
    split, between = s.tensor_parallel_size, sequence_split(s)
    matmuls = sum(
        layer.experts_per_token
        * layer.out_features
        / (between if layer.cuts_inputs else np.minimum(split, layer.most_splits))
        for layer in part.linears
    )
    norms = sum(job.model.hidden_size / between for kept in part.kept if kept.name in part.vectors)
    of_matmul = by_numerics(job, s, lambda n: 4.0 if n == Numerics.FP32 else 2.0)
    of_norm = by_numerics(job, s, lambda n: 4.0 if n in _FP32_NORMS else 2.0)
    return of_matmul * matmuls + of_norm * norms


def _states_of_a_norm(job: Job) -> float:
    norms = [kept for part in job.model.blocks for kept in part.kept if kept.name in part.vectors]
    return 5.0 if any(not kept.is_normalised_in_fp32 for kept in norms) else 2.0


def _is_piped(s: Strategy) -> Truth:
    found: Truth = np.asarray(s.pipeline_parallel_size) > 1
    return found


_FP32_NORMS = (Numerics.FP32, Numerics.AUTOCAST)
_SPLIT = "torch.distributed.pipelining _backward.py, PyTorch 2.13"
