"""The Hugging Face guide's decision process for one node, as rules; each names its families."""

from planner.advice.rules.base import Situation
from planner.advice.rules.sentences import said
from planner.core.units import format_rate
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import POST_TRAINING
from planner.domain.optimizer import ADAMW
from planner.domain.strategy import Recompute
from planner.step_time.nn_data_parallel import data_parallel_step

_NOTABLY_LONGER = 0.01
"""Share of a step from which a difference is told."""

EIGHT_BIT = "adamw-8bit"


def one_gpu_only(situation: Situation) -> str | None:
    """The job has a single GPU.

    Why: there is nothing to parallelise; memory is won by recompute, 16-bit precision, smaller
    micro-batches with accumulation, or an 8-bit optimizer.

    Instead: nothing; more GPUs make the same plan faster by data parallelism.

    Source: Hugging Face, Efficient Training on Multiple GPUs, introduction.
    """
    return said("ONE001.alone") if situation.job.cluster.world_size == 1 else None


def model_fits_on_one_gpu(situation: Situation) -> str | None:
    """The model comfortably fits onto a single GPU (case 1): DDP, or ZeRO.

    Why: every GPU can hold a whole replica, so only gradients need to cross the link, once per
    step; what memory ZeRO saves is not needed here.

    Instead: ZeRO where the memory it frees buys a larger micro-batch that pays for its traffic.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Scalability strategy, case 1.
    """
    cluster = situation.job.cluster
    if cluster.world_size == 1 or situation.is_multi_node or not situation.fits_on_one_gpu:
        return None
    batch, gpus = situation.job.recipe.global_batch_size, cluster.world_size
    otherwise = ddp_does_not_do(situation)
    if batch < gpus and not asked_instead(situation):
        otherwise = said("ONE002.few_sequences", batch=batch, gpus=gpus)
    return fits_text(situation) + (otherwise or said("ONE002.copies"))


def largest_layer_exceeds_one_gpu(situation: Situation) -> str | None:
    """Not even the largest layer fits onto one GPU (case 3): tensor parallelism, or ZeRO.

    Why: a pipeline gives each GPU whole layers, so it cannot divide the one that is too large;
    tensor parallelism divides every matrix, expert parallelism deals out a layer's experts, ZeRO-3
    gathers one layer at a time.

    Instead: with ZeRO, techniques of a single GPU on top: recompute, smaller micro-batches,
    offload.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Scalability strategy, case 3.
    """
    needed, usable = situation.largest_layer_bytes, situation.job.usable_bytes
    if situation.job.cluster.world_size == 1 or needed <= usable:
        return None
    kind = "tensor or expert" if situation.job.model.has_experts else "tensor"
    return said("ONE006.large_layer", needed=needed, usable=usable, kind=kind)


def model_exceeds_one_gpu_on_fast_links(situation: Situation) -> str | None:
    """The model does not fit onto one GPU, and NVLink or NVSwitch joins the GPUs (case 2).

    Why: the replica must be divided; with very fast links pipeline, ZeRO and tensor parallelism
    perform alike, and ZeRO asks for no change to the model.

    Instead: whichever of them comes out fastest, after what its changes to the model cost.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Scalability strategy, case 2.
    """
    if not _exceeds(situation) or not situation.job.cluster.slowest_link.is_fast:
        return None
    if _is_of_whole_models(situation):
        return shortfall(situation) + said("ONE003.fast_whole", link=link(situation))
    return shortfall(situation) + said("ONE003.fast", link=link(situation))


def model_exceeds_one_gpu_on_slow_links(situation: Situation) -> str | None:
    """The model does not fit onto one GPU, and no NVLink joins the GPUs (case 2).

    Why: ZeRO and tensor parallelism cross the link in every layer; a pipeline crosses it once per
    stage, so without NVLink it is the faster way to divide the model.

    Instead: ZeRO with few, large micro-batches, so that each gather serves more tokens, where a
    pipeline is not worth its changes to the model.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Scalability strategy, case 2.
    """
    if not _exceeds(situation) or situation.job.cluster.slowest_link.is_fast:
        return None
    if _is_of_whole_models(situation):
        return shortfall(situation) + said("ONE004.slow_whole", link=link(situation))
    return shortfall(situation) + said("ONE004.slow", link=link(situation))


def _is_of_whole_models(situation: Situation) -> bool:
    """Return whether what trains such a job has data parallelism alone."""
    return situation.job.recipe.job in POST_TRAINING


def single_gpu_techniques_come_first(situation: Situation) -> str | None:
    """Step 0: what one GPU can do comes before any parallelism.

    Why: 16-bit precision, recompute, accumulation of small micro-batches and an 8-bit optimizer
    shrink a replica two- to fourfold; a replica that then fits needs no exchange but gradients.

    Instead: nothing; they go with every kind of parallelism too.

    Source: Hugging Face, Efficient Training on Multiple GPUs, introduction; Methods and tools for
    efficient training on a single GPU.
    """
    if not _is_short_of_memory(situation):
        return None
    precision = situation.job.recipe.precision
    techniques = {
        "16-bit precision (--precision bf16-mixed)": precision in {"fp32", "tf32"},
        "recompute (--recompute full)": situation.candidate.strategy.recompute == Recompute.NONE,
        f"an 8-bit optimizer (--optimizer {EIGHT_BIT})": leaves_8_bit_open(situation),
        "smaller micro-batches with more accumulation": situation.candidate.strategy.micro_batch_size
        > 1,
    }
    left = [name for name, is_open in techniques.items() if is_open]
    return said("ONE007.left", ways=", ".join(left)) if left else None


def leaves_8_bit_open(situation: Situation) -> bool:
    """Return whether memory is short and an 8-bit AdamW would make the states of AdamW smaller."""
    job = situation.job
    is_known = job.recipe.optimizer in ADAMW and EIGHT_BIT in job.framework.optimizers
    return _is_short_of_memory(situation) and is_known and job.recipe.lora is None


def _is_short_of_memory(situation: Situation) -> bool:
    return not (situation.fits_on_one_gpu and situation.candidate.is_comfortable)


def one_process_is_slower(situation: Situation) -> str | None:
    """The layout is DDP on one node, which torch.nn.DataParallel would run slower.

    Why: DataParallel drives all GPUs from one process. At the same micro-batches it sends the
    parameters out again for each, gathers the logits on GPU 0 and reduces the gradients there, five
    exchanges that nothing hides; DDP has one, behind the backward pass. A script that is started
    with `python` on a machine with several GPUs may fall into it unasked.

    Instead: start one process per GPU, with torchrun or accelerate launch.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section DataParallel vs
    DistributedDataParallel; torch/nn/parallel/data_parallel.py.
    """
    job, candidate = situation.job, situation.candidate
    is_plain = candidate.strategy.data_parallel_replicate_size == job.cluster.world_size
    is_plain &= job.cluster.nodes == 1
    # With accumulation DataParallel would be run in other micro-batches: parameters go out for each.
    is_plain &= (
        not candidate.strategy.is_local and candidate.strategy.gradient_accumulation_steps == 1
    )
    if job.cluster.world_size == 1 or not is_plain:
        return None
    if job.recipe.lora is not None or not job.model.has_token_loss:
        return None
    seconds = sum(float(term.amount) for term in data_parallel_step(job, candidate.strategy))
    longer = seconds / float(candidate.step_time.step_seconds) - 1
    if longer < _NOTABLY_LONGER:
        return None
    return said("ONE008.one_process", seconds=seconds, longer=longer)


def asked_instead(situation: Situation) -> str:
    """Return what is asked for where DDP would do, "" where nothing is."""
    dimensions = [each.name for each in DIMENSIONS if each.field in situation.asked]
    asked = [f"{' and '.join(dimensions)} parallelism"] if dimensions else []
    if "zero_stage" in situation.asked:
        asked.append(f"ZeRO-{situation.candidate.strategy.zero_stage}")
    if situation.is_for_memory:
        asked.append("the least memory")
    return " and ".join(asked)


def fits_text(situation: Situation) -> str:
    """Return that one GPU holds a copy of the model, and in how much."""
    usable = situation.job.usable_bytes
    return said("ONE002.fits", replica=situation.smallest_replica_bytes, usable=usable)


def ddp_does_not_do(situation: Situation) -> str:
    """Return what was asked for in place of DDP, or that DDP does not split the batch; "" where neither is so."""
    if asked := asked_instead(situation):
        return said("ONE002.asked", asked=asked)
    batch, gpus = situation.job.recipe.global_batch_size, situation.job.cluster.world_size
    fewer = batch // gpus * gpus
    if fewer == batch:
        return ""
    if not fewer:
        return said("ONE002.too_few", batch=batch, gpus=gpus)
    return said("ONE002.uneven", batch=batch, gpus=gpus, fewer=fewer, more=fewer + gpus)


def _exceeds(situation: Situation) -> bool:
    cluster = situation.job.cluster
    return cluster.world_size > 1 and not situation.is_multi_node and not situation.fits_on_one_gpu


def shortfall(situation: Situation) -> str:
    """Return by how much one GPU is too small, in words."""
    needed, usable = situation.smallest_replica_bytes, situation.job.usable_bytes
    lack = "ONE003.too_large" if needed > usable else "ONE003.no_room"
    return said(lack, replica=needed, usable=usable)


def link(situation: Situation) -> str:
    """Return the link that bounds the job, with its speed."""
    slowest = situation.job.cluster.slowest_link
    return f"{slowest.name} ({format_rate(slowest.bytes_per_second)})"
