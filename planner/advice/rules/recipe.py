"""Rules about a recipe's choices that a card runs slowly, with the flag that names the better one."""

from planner.advice.rules.base import Situation
from planner.core.units import TERA
from planner.domain.cluster import Gpu

FIRST_WITH_FLASH = (8, 0)
"""Compute capability: Ampere."""
_NOTABLY_FASTER = 1.5
"""How much faster TF32 must be than fp32 to be named: GeForce cards of Ampere gain nothing."""


def card_lacks_the_precision(situation: Situation) -> str | None:
    """The card has no matmuls of the recipe's precision, so they run at the rate of fp32.

    Why: tensor cores came to bf16 and TF32 with Ampere, to fp8 with Ada and Hopper; without them a
    matmul is cast up, and takes many times as long as in a precision that the card has.

    Instead: the precision that the message names: fp16-mixed on V100 and T4, bf16-mixed on A100.

    Source: NVIDIA's data sheets (data/gpus, peak_tflops); Transformer Engine refuses fp8 before
    compute capability 8.9.
    """
    job = situation.job
    dtype, peaks = job.precision.matmul_dtype, job.cluster.gpu.peak_flops
    better = next((each for each in ("bf16", "fp16", "tf32") if each in peaks), "")
    if dtype in peaks or not better or not job.framework.precisions.get(_PRECISIONS[better]):
        return None
    return (
        f"{job.cluster.gpu.name} has no {dtype} matmuls: they run at {_tflops(peaks['fp32'])} at the"
        f" most, those of --precision {_PRECISIONS[better]} at {_tflops(peaks[better])}"
    )


def tf32_is_left_out(situation: Situation) -> str | None:
    """The recipe computes in full fp32 on a card whose tensor cores take TF32.

    Why: TF32 keeps fp32's range with ten bits of mantissa, needs no scaling and no other change, and
    is several times as fast from Ampere on; PyTorch leaves it off for matmuls.

    Instead: --precision tf32 (torch.set_float32_matmul_precision("high")), or bf16-mixed.

    Source: Hugging Face, Methods and tools for efficient training on a single GPU, section TF32;
    PyTorch, CUDA semantics, section TensorFloat-32.
    """
    job = situation.job
    peaks = job.cluster.gpu.peak_flops
    gain = peaks.get("tf32", 0.0) / peaks["fp32"]
    if job.precision.matmul_dtype != "fp32" or gain < _NOTABLY_FASTER:
        return None
    return (
        f"fp32 matmuls run at {_tflops(peaks['fp32'])}, TF32's at {_tflops(peaks['tf32'])} on the same"
        " weights: --precision tf32"
    )


def card_lacks_flash_attention(situation: Situation) -> str | None:
    """FlashAttention is asked for on a card older than Ampere, which its kernels do not run on.

    Why: FlashAttention 2 is written for compute capability 8.0 and later; transformers refuses it
    elsewhere, and fused attention of PyTorch takes the memory-efficient kernel.

    Instead: --attention sdpa, which keeps as little and takes whichever kernel the card has.

    Source: Dao-AILab/flash-attention README.md, CUDA support: Ampere, Ada, or Hopper GPUs.
    """
    gpu = situation.job.cluster.gpu
    if situation.job.recipe.attention != "flash" or _capability(gpu) >= FIRST_WITH_FLASH:
        return None
    return (
        f"FlashAttention does not run on {gpu.name}, which is older than Ampere: --attention sdpa"
    )


_PRECISIONS = {"bf16": "bf16-mixed", "fp16": "fp16-mixed", "tf32": "tf32"}


def _capability(gpu: Gpu) -> tuple[int, ...]:
    """Return the compute capability as numbers; other makers' cards have none, and kernels of their own."""
    if not gpu.compute_capability:
        return FIRST_WITH_FLASH
    return tuple(int(number) for number in gpu.compute_capability.split("."))


def _tflops(flops: float) -> str:
    return f"{flops / TERA:,.4g} TFLOPS"
