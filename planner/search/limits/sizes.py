"""Limits of arithmetic: sizes that must multiply, divide, or be a tensor of their own."""

import numpy as np

from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import (
    ALL_LAYERS,
    Offload,
    Recompute,
    Strategy,
    divisors,
    nearest_multiples,
)
from planner.search.limits.base import (
    attention_heads,
    context_sizes,
    divides,
    key_value_heads,
    tensor_sizes,
)


def model_cannot_be_divided(job: Job, s: Strategy) -> Breach:
    """Only decoder-only language models are divided by tensor, pipeline, context or expert parallelism.

    Why: encoders and encoder-decoders have several inputs and paths, so that their stages and
    shards are not a row of alike blocks.

    Instead: data parallelism and ZeRO divide any model.

    Source: torch.distributed.pipelining and Megatron-LM take decoders; HF guide, section
    Pipeline Parallelism, on T5.
    """
    return Breach(
        broken=s.divides_model & (not job.model.is_decoder),
        message="{model} ({kind}) is not split by tensor, pipeline, context or expert parallelism"
        " here: only decoder-only language models are",
        hint="use --strategy ddp, zero-1, zero-2 or zero-3, which divide any model",
        numbers={"model": job.model.name, "kind": job.model.model_type},
        field="strategy",
    )


def heads_do_not_divide(job: Job, s: Strategy) -> Breach:
    """The tensor parallel size must divide the attention heads.

    Why: each rank computes whole heads, so that nothing is exchanged inside attention.

    Instead: a tensor parallel size that divides the number of heads.

    Source: Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3.
    """
    heads = attention_heads(job)
    return Breach(
        broken=np.logical_not(divides(s.tensor_parallel_size, heads)),
        message="tensor_parallel_size {size} does not divide the {heads:,} attention heads",
        hint="use {right}",
        numbers={"size": s.tensor_parallel_size, "heads": heads, "right": tensor_sizes(job)},
        field="strategy.tensor_parallel_size",
    )


def key_value_heads_do_not_divide(job: Job, s: Strategy) -> Breach:
    """Tensor parallelism divides the key-value heads, or replicates each where the framework can.

    Why: a rank needs the keys that its query heads look at; where the two do not divide each
    other, some keys would be split, and only some frameworks hold a head on several ranks.

    Instead: a size that divides the key-value heads; in Megatron-LM also a multiple of them.

    Source: Megatron-LM core/transformer/attention.py, num_query_groups_per_partition; torchtitan and
    transformers' tensor-parallel plans shard the key projection evenly.
    """
    heads, size = key_value_heads(job), s.tensor_parallel_size
    is_able = job.framework.capabilities.replicates_key_values
    fits = divides(size, heads) | (is_able & divides(heads, size)) | (np.asarray(size) == 1)
    return Breach(
        broken=np.logical_not(fits),
        message="tensor_parallel_size {size} does not divide the {heads:,} key-value heads"
        + (" nor is a multiple of them" if is_able else ", which {framework} does not replicate"),
        hint="use {right}"
        if heads > 1
        else "each rank needs the one head: no tensor parallelism, or --framework megatron",
        numbers={
            "size": size,
            "heads": heads,
            "framework": job.framework.name,
            "right": tensor_sizes(job),
        },
        field="strategy.tensor_parallel_size",
    )


def heads_do_not_divide_over_context(job: Job, s: Strategy) -> Breach:
    """Context parallelism that exchanges tokens for heads (Ulysses) divides the heads evenly.

    Why: inside attention each rank has all tokens of some whole heads, after tensor parallelism has
    taken its share of them.

    Instead: a context parallel size that divides the heads of a tensor-parallel rank.

    Source: Jacobs et al., DeepSpeed-Ulysses, arXiv:2309.14509, section 3; the framework record's
    context_parallel section.
    Leaves out: uneven heads, which DeepSpeed's newer layer deals out and pads.
    """
    heads, size = attention_heads(job), s.tensor_parallel_size * s.context_parallel_size
    is_dealt = job.framework.context_parallel.exchange == "all_to_all"
    is_divided = np.asarray(s.context_parallel_size) > 1
    return Breach(
        broken=is_divided & is_dealt & np.logical_not(divides(size, heads)),
        message="context_parallel_size {size} does not divide the {heads:,} attention heads over"
        " {tensor} tensor-parallel ranks, and {framework} exchanges tokens for whole heads (Ulysses)",
        hint="each rank has {share:,} heads: use a divisor of {right:,}",
        numbers={
            "size": s.context_parallel_size,
            "right": context_sizes(job, s),
            "share": np.floor_divide(heads, np.maximum(s.tensor_parallel_size, 1)),
            "heads": heads,
            "tensor": s.tensor_parallel_size,
            "framework": job.framework.name,
        },
        field="strategy.context_parallel_size",
    )


def chunks_need_a_pipeline(_job: Job, s: Strategy) -> Breach:
    """Virtual stages, and schedules that need them, are of a pipeline.

    Why: a rank without a pipeline has one stage, the whole model; several chunks of it would run
    one after another as one does.

    Instead: a pipeline parallel size above 1, or one virtual stage.

    Source: Narayanan et al., arXiv:2104.04473, section 2.2; Megatron-LM refuses them as well.
    """
    is_alone = np.asarray(s.pipeline_parallel_size) == 1
    return Breach(
        broken=is_alone & (np.asarray(s.virtual_pipeline_size) > 1),
        message="{chunks} virtual stages need a pipeline, and pipeline_parallel_size is 1",
        hint="use pipeline_parallel_size 2 or more, or leave virtual_pipeline_size out",
        numbers={"chunks": s.virtual_pipeline_size},
        field="strategy.virtual_pipeline_size",
    )


def sequence_does_not_divide(job: Job, s: Strategy) -> Breach:
    """The context parallel size must divide the sequence.

    Why: every rank holds as many tokens; with causal attention twice as many pieces are dealt out,
    so that early and late tokens balance.

    Instead: a context parallel size that divides the sequence length.

    Source: Liu et al., ring attention, arXiv:2310.01889; Megatron-LM's context parallelism.
    """
    length = job.recipe.sequence_length
    return Breach(
        broken=np.logical_not(divides(s.context_parallel_size, length)),
        message="context_parallel_size {size} does not divide the {length:,} tokens of a sequence",
        hint="use a divisor of {right:,}",
        numbers={
            "size": s.context_parallel_size,
            "length": length,
            "right": context_sizes(job, s),
        },
        field="strategy.context_parallel_size",
    )


def layers_do_not_fill_stages(job: Job, s: Strategy) -> Breach:
    """Every pipeline stage runs a layer; with chunks, the ends may hold embeddings or head alone.

    Why: a stage without layers waits and computes nothing. nanotron deals embeddings, final norm,
    head, cast and loss out as blocks of their own, so its last stages may be without layers.

    Instead: fewer stages, or fewer chunks on each.

    Source: Megatron-LM --num-layers-per-virtual-pipeline-stage; Dubey et al., Llama 3,
    arXiv:2407.21783, section 3.3.2, for the first and last chunk without layers; nanotron
    models/llama.py, its PipelineBlocks.
    """
    stages = s.pipeline_parallel_size * s.virtual_pipeline_size
    alone = job.framework.pipeline.outer_blocks
    spare = np.where(np.asarray(s.virtual_pipeline_size) > 1, 2, alone)
    too_many = stages > job.model.num_blocks + spare
    return Breach(
        broken=too_many & (np.asarray(s.pipeline_parallel_size) > 1),
        message="{layers} layers do not fill {stages} pipeline stages",
        hint="at most {layers}",
        numbers={"layers": job.model.num_blocks, "stages": stages},
        field="strategy.pipeline_parallel_size",
    )


def sizes_do_not_multiply(job: Job, s: Strategy) -> Breach:
    """The sizes of all kinds of parallelism must multiply to the number of GPUs.

    Why: every GPU has one place in each kind.

    Instead: change one of the sizes, or the number of GPUs.

    Source: torch.distributed.device_mesh.init_device_mesh; Megatron-LM core/parallel_state.py.
    """
    others = s.model_parallel_size
    ranks = s.data_parallel_size
    return Breach(
        broken=ranks * others != job.cluster.world_size,
        message="the sizes multiply to {product:,} (tensor x pipeline x context {others:,}, replicas"
        " {replicate:,}, shards {shard:,}), but there are {gpus:,} GPUs",
        hint="choose divisors of {gpus:,} whose product is {gpus:,}",
        numbers={
            "replicate": s.data_parallel_replicate_size,
            "shard": s.data_parallel_shard_size,
            "others": others,
            "product": ranks * others,
            "gpus": job.cluster.world_size,
        },
        field="strategy",
    )


def batch_does_not_split(job: Job, s: Strategy) -> Breach:
    """Micro-batch x accumulation steps x data-parallel ranks must be the global batch.

    Why: every rank takes as many micro-batches of one size, or the mean would not be one.

    Instead: another micro-batch, or a global batch that the ranks divide.

    Source: DeepSpeed's train_batch_size arithmetic; Megatron-LM --global-batch-size.
    """
    ranks, batch = s.data_parallel_size, job.recipe.global_batch_size
    product = s.micro_batch_size * s.gradient_accumulation_steps * ranks
    one_round = s.micro_batch_size * ranks
    hint = "it must be a multiple of micro_batch_size x data-parallel ranks"
    if np.ndim(one_round) == 0:
        steps, rest = divmod(batch, int(one_round))
        hint = (
            nearest_splits(batch, int(ranks), int(s.micro_batch_size))
            if rest
            else f"use {steps} accumulation step{'s' if steps > 1 else ''}, or a batch of {int(product)}"
        )
    return Breach(
        broken=product != batch,
        message="micro_batch_size {micro_batch} x gradient_accumulation_steps {steps}"
        " x {ranks} ranks = {product}, but global_batch_size is {batch}",
        hint=hint,
        numbers={
            "micro_batch": s.micro_batch_size,
            "steps": s.gradient_accumulation_steps,
            "ranks": ranks,
            "product": product,
            "batch": batch,
        },
        field="recipe.global_batch_size",
    )


def nearest_splits(batch: int, ranks: int, micro_batch_size: int) -> str:
    """Return a hint with the nearest batches, and micro-batches, that so many ranks divide."""
    hint = nearest_multiples(batch, ranks * micro_batch_size)
    sizes = divisors(batch // ranks) if batch % ranks == 0 else []
    below = [size for size in sizes if size < micro_batch_size][-1:]
    near = [*below, *[size for size in sizes if size > micro_batch_size][:1]]
    return f"{hint}; or micro-batches of {' or '.join(map(str, near))}" if near else hint


def ddp_shards_nothing(_job: Job, s: Strategy) -> Breach:
    """Without ZeRO every rank holds whatever its replica holds.

    Why: a shard size says over how many ranks ZeRO divides the states.

    Instead: a replicate size, or ZeRO stage 1, 2 or 3.

    Source: Rajbhandari et al., ZeRO, arXiv:1910.02054, section 5.
    """
    shard = s.data_parallel_shard_size
    return Breach(
        broken=(np.asarray(s.zero_stage) == 0) & (np.asarray(shard) > 1),
        message="zero_stage 0 (DDP) shards nothing, but data_parallel_shard_size is {shard}",
        hint="use data_parallel_replicate_size {ranks}, or zero_stage 1, 2 or 3",
        numbers={"shard": shard, "ranks": s.data_parallel_size},
        field="strategy.data_parallel_shard_size",
    )


def local_sgd_needs_whole_replicas(_job: Job, s: Strategy) -> Breach:
    """Local SGD averages whole replicas, so nothing may divide them.

    Why: between averages the replicas drift apart; a divided tensor would mix parts of different
    models.

    Instead: ZeRO stage 0 and no model parallelism, or an average in every step.

    Source: Stich, local SGD, arXiv:1805.09767; accelerate.local_sgd refuses DeepSpeed and TPUs.
    """
    is_divided = (np.asarray(s.zero_stage) > 0) | s.divides_model
    return Breach(
        broken=np.asarray(s.is_local) & is_divided,
        message="synchronize_every={every} (local SGD) averages whole replicas, but this layout"
        " divides them",
        hint="use zero_stage 0 and no model parallelism, or synchronize_every 1",
        numbers={"every": s.synchronize_every},
        field="strategy.synchronize_every",
    )


def layers_recompute_nothing(_job: Job, s: Strategy) -> Breach:
    """Some layers can recompute only where recomputing is asked for.

    Why: without it no layer's activations are computed again, so a number of layers says nothing.

    Instead: `--recompute full`, or selective, beside `--recompute-layers`.

    Source: Megatron-LM, --recompute-granularity beside --recompute-num-layers.
    """
    is_some = np.asarray(s.recompute_layers) < ALL_LAYERS
    return Breach(
        broken=is_some & (np.asarray(s.recompute) == Recompute.NONE),
        message="recompute_layers {layers} does nothing without recompute",
        hint="--recompute full, or leave the number of layers out",
        numbers={"layers": s.recompute_layers},
        field="strategy.recompute_layers",
    )


def gradients_outlive_their_step(job: Job, s: Strategy) -> Breach:
    """A step inside backward takes each gradient as it comes, so it must be whole then.

    Why: accumulation adds to gradients until the last micro-batch, DDP and ZeRO-1 hold all of them in
    buckets, and an offloaded optimizer steps after backward.

    Instead: one micro-batch a step, on one GPU or with ZeRO-2 or 3.

    Source: torch.Tensor.register_post_accumulate_grad_hook; Lv et al., LOMO, arXiv:2306.09782.
    """
    is_shared = np.logical_not(s.shards_gradients) & (s.data_parallel_size > 1)
    accumulates = np.asarray(s.gradient_accumulation_steps) > 1
    return Breach(
        broken=job.recipe.optimizer_in_backward & (accumulates | is_shared | s.offloads_optimizer),
        message="optimizer_in_backward needs each gradient whole as it comes: with zero_stage {stage}, {steps} micro-batches"
        " a step and offload={offload} it is not",
        hint="--accumulation-steps 1 with ZeRO-2 or 3, or one GPU; or no --optimizer-in-backward",
        numbers={
            "stage": s.zero_stage,
            "steps": s.gradient_accumulation_steps,
            "offload": Offload.name_of(s.offload),
        },
        field="recipe.optimizer_in_backward",
    )


def adapters_are_not_split(job: Job, s: Strategy) -> Breach:
    """Adapters are divided by tensor parallelism, and stand beside divided experts, in few frameworks.

    Why: PEFT wraps whole linears, and its adapters follow no tensor-parallel plan but that of the script of
    PyTorch alone. Megatron Bridge's are parallel layers of their own; they stand in each rank's part of the
    model, of which experts have none here.

    Instead: data parallelism, ZeRO and pipelines.

    Source: PEFT 0.19, tuners/lora: no tensor-parallel layers outside Megatron's own; the framework
    record's capabilities.
    """
    sizes = {"tensor": s.tensor_parallel_size, "expert": s.expert_parallel_size}
    lacking = [name for name in sizes if name not in job.framework.capabilities.adapters_with]
    used = {name: np.asarray(sizes[name]) > 1 for name in lacking}
    field = next((name for name in lacking if np.any(used[name])), "tensor")
    is_split = np.any(np.stack(np.broadcast_arrays(*used.values())), axis=0) if used else False
    return Breach(
        broken=np.asarray(is_split) & (job.recipe.lora is not None),
        message="{framework} cannot divide adapters by {name} parallelism",
        hint="use data parallelism, ZeRO or a pipeline",
        numbers={"name": field, "framework": job.framework.name},
        field=f"strategy.{field}_parallel_size",
    )
