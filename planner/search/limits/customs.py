"""Limits of good practice: layouts that run, and that no expert would start."""

import numpy as np

from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import ZERO_1, ZERO_2, PipelineSchedule, Recompute, Strategy
from planner.parallel.pipeline_schedules import fewest_chunks, is_grouped, splits_backward
from planner.search.limits.base import divides, tensor_sizes

TILE_TOKENS = 128
"""Queries that a block of fused attention works on."""


def tensors_leave_the_node(job: Job, s: Strategy) -> Breach:
    """Tensor parallelism must stay inside a node.

    Why: it sums activations twice in every layer, forward and backward, with nothing to hide
    behind; a network is ten times slower than NVLink. With 4 GPUs in a node the highest degree is 4.

    Instead: at most as many as a node has GPUs, or as many as a rack that NVLink joins, which counts
    as one node (--nvlink-domain 72); pipelines or ZeRO beyond.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Tensor Parallelism; Narayanan
    et al., arXiv:2104.04473, takeaway 1.
    """
    size, gpus = s.tensor_parallel_size, job.cluster.joined_gpus
    return Breach(
        broken=(np.asarray(size) > gpus) & job.cluster.needs_network,
        message="tensor_parallel_size {size} spans nodes of {gpus} GPUs, so every layer would wait for {name}"
        " twice",
        hint="at most {gpus}; a rack joined by NVLink counts as one node: --nvlink-domain GPUS",
        numbers={
            "size": size,
            "gpus": gpus,
            "name": job.cluster.inter_node.name if job.cluster.inter_node else "",
        },
        field="strategy.tensor_parallel_size",
    )


def tensors_straddle_nodes(job: Job, s: Strategy) -> Breach:
    """A tensor-parallel group lies in one node, so its size divides the node's GPUs.

    Why: ranks are numbered node by node; a group of 3 in nodes of 8 would have members in two. A
    rack that NVLink joins counts as one node.

    Instead: a divisor of the node's GPUs.

    Source: Megatron-LM core/parallel_state.py, the order of ranks.
    """
    size, gpus = s.tensor_parallel_size, job.cluster.joined_gpus
    inside = np.asarray(size) <= gpus
    return Breach(
        broken=inside & np.logical_not(divides(size, gpus)) & job.cluster.needs_network,
        message="groups of {size} tensor-parallel ranks do not divide nodes of {gpus} GPUs",
        hint="use {right}",
        numbers={"size": size, "gpus": gpus, "right": tensor_sizes(job)},
        field="strategy.tensor_parallel_size",
    )


def zero_divides_a_pipelines_gradients(job: Job, s: Strategy) -> Breach:
    """With a pipeline, ZeRO shards the optimizer alone.

    Why: ZeRO-2 reduce-scatters every micro-batch, of which a pipeline has many small ones, and
    ZeRO-3 gathers the stage again for each; the pipeline divides gradients and parameters already.

    Instead: ZeRO-1, or no pipeline. Where a framework shards only as FSDP does, ZeRO-2 keeps the
    gathered parameters of a stage through the step.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Data Parallelism + Pipeline
    Parallelism + Tensor Parallelism, on ZeRO; the framework record's capabilities.
    """
    most = most_zero_with_pipeline(job)
    is_piped = np.asarray(s.pipeline_parallel_size) > 1
    return Breach(
        broken=is_piped & (np.asarray(s.zero_stage) > most),
        message="ZeRO-{stage} exchanges gradients{parameters} for each of a pipeline's {steps} micro-batches,"
        " though its {stages} stages divide them already",
        hint="use zero_stage {most} with pipelines",
        numbers={
            "stage": s.zero_stage,
            "parameters": np.where(np.asarray(s.zero_stage) > ZERO_2, " and parameters", ""),
            "steps": s.gradient_accumulation_steps,
            "stages": s.pipeline_parallel_size,
            "most": most,
        },
        field="strategy.zero_stage",
    )


def most_zero_with_pipeline(job: Job) -> int:
    """Return the highest ZeRO stage that is proposed with pipelines: the framework's first sharding one."""
    first = min((stage for stage in job.framework.zero_stages if stage >= ZERO_1), default=0)
    return min(first, job.framework.capabilities.zero_with_pipeline)


def stages_take_turns(_job: Job, s: Strategy) -> Breach:
    """A pipeline has a micro-batch for every stage at least: naive model parallelism is never proposed.

    Why: with one micro-batch (chunks = 1) all stages but one are idle at any time, so p GPUs work
    like one with p times the memory; with fewer than stages some never work together.

    Instead: more, smaller micro-batches; four per stage leave a bubble below a fifth.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Naive Model Parallelism;
    torch.distributed.pipelining refuses 1F1B with fewer micro-batches than stages.
    """
    stages, steps = s.pipeline_parallel_size, s.gradient_accumulation_steps
    is_naive = (np.asarray(steps) < stages) | (
        np.asarray(s.pipeline_schedule) == PipelineSchedule.NAIVE
    )
    return Breach(
        broken=(np.asarray(stages) > 1) & is_naive,
        message="gradient_accumulation_steps {steps} does not fill {stages} stages ({schedule}): they take turns,"
        " and most GPUs idle",
        hint="a smaller micro_batch_size makes more micro-batches",
        numbers={
            "stages": stages,
            "steps": steps,
            "schedule": PipelineSchedule.name_of(s.pipeline_schedule),
        },
        field="strategy.gradient_accumulation_steps",
    )


def put_off_gradients_are_recomputed(_job: Job, s: Strategy) -> Breach:
    """Zero-bubble schedules keep all activations.

    Why: weight gradients are put off until the bubble, and need what recompute has thrown away
    again by then.

    Instead: 1f1b or interleaved chunks with recompute, or a zero-bubble schedule without.

    Source: torch.distributed.pipelining, PyTorch 2.13: stages under activation checkpointing do
    not split their backward; Qi et al., zero bubble, arXiv:2401.10241, section 4.
    """
    is_put_off = splits_backward(s)
    is_recomputed = np.asarray(s.recompute) != Recompute.NONE
    return Breach(
        broken=(np.asarray(s.pipeline_parallel_size) > 1) & is_put_off & is_recomputed,
        message="{schedule} computes weight gradients later, from activations that {recompute} recompute has freed",
        hint="use recompute none, or 1f1b",
        numbers={
            "schedule": PipelineSchedule.name_of(s.pipeline_schedule),
            "recompute": Recompute.name_of(s.recompute),
        },
        field="strategy.pipeline_schedule",
    )


def chunks_do_not_interleave(job: Job, s: Strategy) -> Breach:
    """Interleaving deals equal chunks of layers, and micro-batches in groups of the stages.

    Why: a stage turns to its next chunk after as many micro-batches as there are stages.

    Instead: micro-batches that the stages divide, and as many chunks as divide a stage's layers.

    Source: Narayanan et al., arXiv:2104.04473, section 2.2; torch's ScheduleInterleaved1F1B and
    Megatron-LM ask for the same.
    """
    stages, steps = s.pipeline_parallel_size, s.gradient_accumulation_steps
    virtual = np.asarray(s.virtual_pipeline_size)
    layers = -(-job.model.num_blocks // np.maximum(stages, 1))
    is_even = divides(stages, steps) & divides(virtual, layers) & (virtual > 1)
    is_wrong = np.where(is_grouped(s), np.logical_not(is_even), virtual != fewest_chunks(s))
    return Breach(
        broken=(np.asarray(stages) > 1) & is_wrong,
        message="{schedule} does not run {chunks} chunks of {layers} layers a stage with {steps}"
        " micro-batches on {stages} stages",
        hint="interleaved-1f1b takes chunks that divide {layers}, and micro-batches that {stages}"
        " divides; zbv takes two chunks, all others one",
        numbers={
            "schedule": PipelineSchedule.name_of(s.pipeline_schedule),
            "chunks": s.virtual_pipeline_size,
            "layers": layers,
            "steps": steps,
            "stages": stages,
        },
        field="strategy.virtual_pipeline_size",
    )


def context_pieces_are_short(job: Job, s: Strategy) -> Breach:
    """Context parallelism deals each rank an early and a late piece, of a kernel's tile at least.

    Why: under a causal mask late tokens attend to more, so a rank takes one piece from each end;
    fused attention works in tiles of 128 tokens, and shorter pieces waste them.

    Instead: a smaller context parallel size; tensor or data parallelism for the rest.

    Source: Brandon et al., striped attention, arXiv:2311.09431; Dao, FlashAttention-2,
    arXiv:2307.08691, section 3.3, for the tiles.
    """
    size, length = s.context_parallel_size, job.recipe.sequence_length
    is_short = np.asarray(2 * TILE_TOKENS * size) > length
    is_uneven = np.logical_not(divides(2 * size, length))
    return Breach(
        broken=(np.asarray(size) > 1) & (is_short | is_uneven),
        message="context_parallel_size {size} cuts {length:,} tokens into pieces of {piece:,.4g}",
        hint="two pieces per rank, whole and of {tile} tokens at least",
        numbers={"size": size, "length": length, "piece": length / (2 * size), "tile": TILE_TOKENS},
        field="strategy.context_parallel_size",
    )
