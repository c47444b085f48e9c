"""Weights that are stored quantised: which of them can be trained, and by what."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.model import Model
from planner.domain.strategy import ZERO_3, Strategy
from planner.targets.base import refusal
from planner.targets.common import OWN_MODELS, converted, loads_weights

DEQUANTIZERS: Mapping[str, str] = MappingProxyType(
    {"mxfp4": "Mxfp4Config", "fp8": "FineGrainedFP8Config"}
)
"""transformers' classes that bring stored weights to 16 or 32 bit as they are loaded, by how they are stored."""
_FP8_BLOCK = 128
"""Rows and columns of a matrix that share a scale. Source: FineGrainedFP8Config of transformers 5.23."""
_NF4 = 4
_FROM_16_BIT = "take a copy of the model in bf16"


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why weights that are stored quantised are not trained; nothing of a model that starts at random.

    Tried with transformers 5.23: BitsAndBytesConfig beside another method's raises ValueError, and
    so does a matrix whose rows its blocks of fp8 do not divide equally.
    """
    stored, lora = job.model.stored_in, job.recipe.lora
    kind, is_own = job.model.model_type, job.framework.name in OWN_MODELS
    has_weights = loads_weights(job.framework.name, has_adapters=lora is not None, model_type=kind)
    if not stored or not job.model.is_pretrained or not has_weights:
        return ()
    is_read = kind in converted() and stored in converted()[kind].stored_in
    is_zero_3 = np.asarray(s.zero_stage) == ZERO_3
    return (
        refusal(
            np.logical_not(_is_base_of_adapters(job) & np.logical_not(s.shards_gradients))
            & (stored not in DEQUANTIZERS),
            "its weights are stored in {stored}, which is not trained: take the model that it was made from",
            "model",
            stored=stored[:40],
        ),
        refusal(
            stored in DEQUANTIZERS and lora is not None and lora.is_quantised,
            "its weights are stored in {stored}, which bitsandbytes does not quantise again:"
            f" --method lora, or {_FROM_16_BIT}",
            "recipe.method",
            stored=stored[:40],
        ),
        refusal(
            is_own and not is_read,
            f"its weights are stored in {{stored}}, and its bridge was read for those in 16 bit: {_FROM_16_BIT}",
            "model",
            stored=stored[:40],
        ),
        refusal(
            stored == "fp8" and not is_own and _has_uneven_blocks(job.model),
            "its weights are stored in fp8, in blocks that do not fill each matrix equally, which"
            f" transformers does not bring to 16 bit: {_FROM_16_BIT}",
            "model",
        ),
        refusal(
            is_zero_3 & (job.framework.name == "deepspeed"),
            "every process would load the weights whole: transformers loads none that are stored"
            f" in {{stored}} in DeepSpeed's shards: --framework torch, or {_FROM_16_BIT}",
            stored=stored[:40],
        ),
    )


def _is_base_of_adapters(job: Job) -> bool:
    said, lora = job.model.config.get("quantization_config"), job.recipe.lora
    is_4_bit = isinstance(said, Mapping) and bool(said.get("load_in_4bit"))
    return is_4_bit and lora is not None and lora.base_bits == _NF4


def _has_uneven_blocks(model: Model) -> bool:
    """Return whether as many equal blocks as a matrix has scales do not fill it, as transformers 5.23 demands.

        size % ceil(size / 128) > 0, of its rows or of its columns

    Source: _dequantize_one of transformers' integrations/finegrained_fp8.py.
    """
    sizes = {
        size
        for part in model.blocks
        for layer in part.linears
        for size in (layer.in_features, layer.out_features)
    }
    return any(size % -(-size // _FP8_BLOCK) for size in sizes)
