"""Rules about a recipe's choices that a card runs slowly, with the flag that names the better one."""

from planner.advice.rules.base import Situation
from planner.advice.rules.sentences import said
from planner.core.units import TERA
from planner.targets.common import lacks_flash_attention

_NOTABLE_LONGER = 0.02
"""Share of a step from which compiling is told: estimates of one framework tell no less apart."""
_NOTABLY_FASTER = 1.5
"""How much faster TF32 must be than fp32 to be named: GeForce cards of Ampere gain nothing."""


def card_lacks_the_precision(situation: Situation) -> str | None:
    """The card has no matmuls of the recipe's precision, so they run at the rate of fp32.

    Why: tensor cores came to bf16 and TF32 with Ampere, to fp8 with Ada and Hopper; without them a
    matmul is cast up, and takes many times as long as in a precision that the card has.

    Instead: the precision that the message names: fp16-mixed on V100 and T4, bf16-mixed on A100, fp32
    on cards without tensor cores.

    Source: NVIDIA's data sheets (data/gpus, peak_tflops); Transformer Engine refuses fp8 before
    compute capability 8.9.
    """
    job = situation.job
    dtype, peaks = job.precision.matmul_dtype, job.cluster.gpu.peak_flops
    if dtype in peaks:
        return None
    better = next((each for each in _PRECISIONS if each in peaks), "")
    slow = said("REC001.slow", gpu=job.cluster.gpu.name, dtype=dtype, rate=_tflops(peaks["fp32"]))
    if not better:
        return slow + said("REC001.no_better")
    precision = _PRECISIONS[better]
    if not job.framework.precisions.get(precision):
        return None
    return slow + said("REC001.better", precision=precision, better=_tflops(peaks[better]))


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
    return said("REC002.tf32", rate=_tflops(peaks["fp32"]), better=_tflops(peaks["tf32"]))


def card_lacks_flash_attention(situation: Situation) -> str | None:
    """FlashAttention is asked for on a card older than Ampere, which its kernels do not run on.

    Why: FlashAttention 2 is written for compute capability 8.0 and later; transformers refuses it
    elsewhere, and fused attention of PyTorch takes the memory-efficient kernel.

    Instead: --attention sdpa, which keeps as little and takes whichever kernel the card has.

    Source: Dao-AILab/flash-attention README.md, CUDA support: Ampere, Ada, or Hopper GPUs.
    """
    if not lacks_flash_attention(situation.job):
        return None
    return said("REC003.older", gpu=situation.job.cluster.gpu.name)


def compiled_is_faster(situation: Situation) -> str | None:
    """The plan compiles the model, as the best plan without it takes longer.

    Why: torch.compile fuses elementwise kernels, which then read and write memory once, and launches fewer of them.

    Instead: --no-compile, where the first step's minutes of compiling are more than a run saves, or where shapes
    change from batch to batch.

    Source: the search with and without; the compile section of the framework's record.
    """
    if situation.eager is None or not situation.job.recipe.compile:
        return None
    eager = situation.eager.step_time.step_seconds
    longer = float(eager / situation.candidate.step_time.step_seconds) - 1
    if longer < _NOTABLE_LONGER:
        return None
    return said("REC004.compiled", eager=eager, longer=longer)


_PRECISIONS = {"bf16": "bf16-mixed", "fp16": "fp16-mixed", "tf32": "tf32"}


def _tflops(flops: float) -> str:
    return f"{flops / TERA:,.4g} TFLOPS"
