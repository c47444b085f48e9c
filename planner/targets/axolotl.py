"""What axolotl does not train as planned.

Source: axolotl 0.19.0, loaders/model.py, core/builders, monkeypatch/accelerate/fsdp2.py and utils/schemas.
"""

import numpy as np

from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import Strategy
from planner.targets import common, finetuners
from planner.targets.base import refusal
from planner.targets.families import windowed


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why axolotl refuses a layout."""
    return (
        refusal(
            np.asarray(s.tensor_parallel_size) > 1,
            "its tensor parallelism is DeepSpeed's AutoTP, which has no estimates",
        ),
        refusal(
            np.asarray(s.expert_parallel_size) > 1,
            "its experts exchange tokens by DeepEP, which this framework's estimates leave out",
        ),
        *finetuners.judge(job, s),
        *_precision(job, s),
        *_context(job, s),
    )


def _precision(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return which weights axolotl would load otherwise.

    `bf16: true` loads all weights in bf16 and computes under autocast; adapters are in fp32 unless it is told not to.
    """
    recipe, is_full = job.recipe, job.recipe.lora is None
    is_deepspeed = job.framework.name == "deepspeed"
    is_flash = recipe.attention == "flash"
    return (
        refusal(
            recipe.precision not in common.PRECISIONS
            or (recipe.precision == "bf16" and not is_deepspeed),
            "it computes in fp32, tf32, or in 16 bit under autocast, not in {precision}",
            "recipe.precision",
            hint="--precision bf16-mixed",
            precision=recipe.precision,
        ),
        refusal(
            is_full
            and recipe.precision == "bf16-mixed"
            and not is_deepspeed
            and not (job.is_in_config_dtype and job.model.weights_dtype == "bf16"),
            "it loads the weights that it trains in bf16, without a copy in fp32",
            "recipe.weights_dtype",
            hint="--weights config",
        ),
        refusal(
            is_full and recipe.precision == "fp16-mixed" and not is_deepspeed,
            "it loads the weights that it trains in fp16, where a loss scale needs them in fp32",
            "recipe.precision",
        ),
        refusal(
            np.logical_not(s.shards_gradients)
            & (is_full and not is_deepspeed and not is_flash and recipe.precision == "bf16-mixed"),
            "without shards it brings embeddings and norms to fp32 unless FlashAttention asks for 16 bit",
            "recipe.attention",
            hint="--attention flash",
        ),
    )


def _context(job: Job, s: Strategy) -> tuple[Breach, ...]:
    context, short = np.asarray(s.context_parallel_size), windowed(job)
    return (
        refusal(
            (context > 1) & (not finetuners.has_flash_2(job)),
            "it divides a sequence by ring-flash-attn, which is FlashAttention 2's",
            "recipe.attention",
        ),
        refusal(
            (context > 1) & (np.asarray(s.micro_batch_size) > 1),
            "ring-flash-attn takes one sequence at a time",
            "strategy.micro_batch_size",
            hint="--micro-batch 1",
        ),
        refusal(
            (context > 1) & np.logical_not(s.shards_gradients),
            "its GPUs that divide a sequence share out the weights too (FSDP)",
        ),
        refusal(
            (context > 1) & (job.recipe.sequence_length % context > 0),
            "{context} pieces of a sequence do not divide {tokens} tokens",
            context=s.context_parallel_size,
            tokens=job.recipe.sequence_length,
        ),
        refusal((context > 1) & (short is not None), "{short}", short=short),
        refusal(
            (context > 1) & (job.framework.name == "deepspeed"),
            "with DeepSpeed it divides the data, not the model, over GPUs",
        ),
    )
