"""What LLaMA-Factory does not train as planned.

Source: LLaMA-Factory 0.9.5, hparams/parser.py, model/adapter.py, model/loader.py and model/model_utils; Accelerate 1.11,
the newest that it allows, utils/fsdp_utils.py.
"""

from collections.abc import Mapping
from functools import cache

import numpy as np

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import Strategy
from planner.targets import common, finetuners
from planner.targets.base import refusal


@frozen
class _LlamaFactory:
    source: str
    fused_loss: tuple[str, ...]
    """Types of models that it gives Liger's kernels."""
    own_attention: Mapping[str, str]
    """Types of models whose attention it chooses itself, with what that is."""


@cache
def known() -> _LlamaFactory:
    """Return `data/scripts/llama_factory.toml`."""
    return build(_LlamaFactory, read("scripts", "llama_factory"), "scripts/llama_factory")


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why LLaMA-Factory refuses a layout."""
    recipe, kind = job.recipe, job.model.model_type
    others = s.tensor_parallel_size * s.context_parallel_size * s.expert_parallel_size
    return (
        refusal(np.asarray(others) > 1, "it divides the data, not the model, over GPUs"),
        *finetuners.judge(job, s),
        *_precision(job, s),
        refusal(s.is_hybrid, "its FSDP shards over all GPUs, without replicas"),
        refusal(
            s.shards_gradients & (recipe.lora is not None and job.framework.name != "deepspeed"),
            "the Accelerate that it allows makes fp32 of frozen weights that FSDP shards",
            "strategy.zero_stage",
            hint="--framework deepspeed",
        ),
        refusal(
            kind in known().own_attention,
            "it gives models of type {kind} {attention}",
            "model",
            kind=kind[:40],
            attention=known().own_attention.get(kind, ""),
        ),
        refusal(
            recipe.attention == "flash" and not finetuners.has_flash_2(job),
            "of FlashAttention it has the second version alone",
            "recipe.attention",
            hint="--attention sdpa",
        ),
        refusal(
            recipe.loss == "fused" and (kind not in known().fused_loss or job.model.has_experts),
            "it gives models of type {kind} no fused loss, or experts by Liger beside it",
            "recipe.loss",
            hint="--loss standard",
            kind=kind[:40],
        ),
    )


def _precision(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return which weights LLaMA-Factory would load otherwise.

    It brings what is trained to fp32 unless `pure_bf16` is set, and freezes weights in the dtype that it computes in: in
    fp32 that is the one of config.json.
    """
    recipe, lora = job.recipe, job.recipe.lora
    is_fp32, is_deepspeed = recipe.precision in {"fp32", "tf32"}, job.framework.name == "deepspeed"
    is_half = common.trains_in_config_dtype(job) and not is_deepspeed
    return (
        refusal(
            recipe.precision not in common.PRECISIONS,
            "it trains in {precisions}, not in {precision}",
            "recipe.precision",
            precision=recipe.precision,
            precisions=", ".join(common.PRECISIONS),
        ),
        refusal(
            is_fp32 and (lora is not None or is_deepspeed),
            "in fp32 it loads weights in the dtype of their config",
            "recipe.precision",
            hint="--precision bf16-mixed",
        ),
        refusal(
            lora is not None
            and recipe.precision == "bf16"
            and not lora.is_half
            and not is_deepspeed,
            "beside adapters in fp32 it computes under autocast",
            "recipe.precision",
            hint="--precision bf16-mixed",
        ),
        refusal(
            is_half and job.model.weights_dtype != "bf16",
            "of 16-bit weights it trains those in bf16",
            "recipe.weights_dtype",
            hint="--weights fp32",
        ),
        refusal(
            s.shards_gradients & (is_half and recipe.precision == "bf16-mixed"),
            "Accelerate makes fp32 of the 16-bit weights that it has it shard and train",
            "recipe.weights_dtype",
            hint="--weights fp32",
        ),
        common.loss_scale(job),
    )
