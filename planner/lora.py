"""A recipe's wish for adapters -> the adapters of a job, with every gap filled."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from planner import adapters, catalog
from planner.errors import InvalidInputError
from planner.job import Lora
from planner.model import Model


class LoraRequest(BaseModel):
    """Adapters beside frozen weights, in PEFT's words."""

    model_config = ConfigDict(extra="forbid", strict=True)

    rank: int = Field(default=16, ge=1, le=4096)
    targets: Literal["all-linear"] | list[str] | None = Field(
        default=None, min_length=1, max_length=64, examples=[["q_proj", "v_proj"]]
    )
    alpha: float | None = Field(default=None, gt=0, le=1e6)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    bits: Literal[4, 8] = 4
    double_quantization: bool = False
    dtype: Literal["fp32", "16-bit"] | None = None


def find_lora(
    method: str, wish: LoraRequest | None, precision: str, model: Model
) -> tuple[Lora | None, list[tuple[str, str]]]:
    """Return the adapters, None for full fine-tuning, and what was assumed: text and field.

    Raises:
        PlannerError: the wish contradicts the method, or the model has no such linear.
    """
    if method == "full":
        if wish is not None:
            raise InvalidInputError(
                'method "full" has no adapters', hint='method "lora"', field="recipe.lora"
            )
        return None, []
    wish = wish or LoraRequest()
    if method == "lora":
        _refuse_quantization(wish)
    defaults, modules = catalog.adapter_targets(model.model_type)
    targets = adapters.find_targets(model, wish.targets, defaults, modules)
    assumed = []
    if "rank" not in wish.model_fields_set:
        assumed.append((f"adapters of rank {wish.rank}", "recipe.lora.rank"))
    if wish.targets is None:
        why = f"as PEFT has them for {model.model_type}" if defaults else "every linear of a block"
        assumed.append((f"adapters on {', '.join(targets)}, {why}", "recipe.lora.targets"))
    return _lora(method, wish, precision, targets), assumed


def _lora(method: str, wish: LoraRequest, precision: str, targets: tuple[str, ...]) -> Lora:
    is_fp32 = precision in {"fp32", "tf32"}
    is_half = wish.dtype == "16-bit" or (wish.dtype is None and precision == "bf16")
    full_bits = 32 if is_fp32 else 16
    return Lora(
        rank=wish.rank,
        alpha=wish.alpha or 2.0 * wish.rank,
        dropout=wish.dropout,
        targets=targets,
        base_bits=wish.bits if method == "qlora" else full_bits,
        has_double_quantization=wish.double_quantization,
        adapter_bytes=2 if is_half and not is_fp32 else 4,
    )


def _refuse_quantization(wish: LoraRequest) -> None:
    for name in ("bits", "double_quantization"):
        if name in wish.model_fields_set:
            raise InvalidInputError(
                f'{name} is of quantised weights, and method "lora" has none',
                hint='method "qlora"',
                field=f"recipe.lora.{name}",
            )
