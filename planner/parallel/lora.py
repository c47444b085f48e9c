"""A recipe's wish for adapters -> the adapters of a job, with every gap filled."""

from collections.abc import Sequence
from dataclasses import replace

from planner.catalog import records
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.framework import Experts
from planner.domain.job import Lora
from planner.domain.model import Model
from planner.parallel import adapters

DEFAULT_RANK = 16
_NF4_BITS = 4
_SHARED = "shared_expert_"
_MOST_NAMED, _FEW_NAMED = 8, 3
"""Linears that are all named, and how many are of more than these."""
_EXPERTS_GO = "experts are quantised with the rest, as the linears that they are in transformers 4"
_EXPERTS_STAY = (
    "experts stay in 16 bit: transformers 5 holds those of a layer as one tensor, and bitsandbytes"
    " quantises linears alone"
)


@frozen
class LoraWish:
    """Adapters beside frozen weights, in PEFT's words; None for what was left open."""

    rank: int | None = None
    targets: str | list[str] | None = None
    """Names of linears, or "all-linear"."""
    alpha: float | None = None
    dropout: float = 0.0
    dropout_position: str = "pre"
    """"pre" drops of the adapter's input, as PEFT does, "post" of its output."""
    bits: int | None = None
    double_quantization: bool | None = None
    dtype: str | None = None
    """Of the adapters: "16-bit", or "fp32", to which PEFT casts them (autocast_adapter_dtype)."""


def find_lora(
    method: str, wish: LoraWish | None, precision: str, model: Model, experts: Experts
) -> tuple[Lora | None, list[tuple[str, str]]]:
    """Return the adapters, None for full fine-tuning, and what was assumed: text and field.

    Adapters on experts that are linears are left out: "all-linear" means the others.

    Raises:
        PlannerError: the wish contradicts the method, or the model has no such linear.
    """
    if method == "full":
        if wish is not None:
            raise InvalidInputError(
                'method "full" has no adapters', hint="--method lora", field="recipe.lora"
            )
        return None, []
    wish = wish or LoraWish()
    if method == "lora":
        _refuse_quantization(wish)
    defaults, modules = records.adapter_targets(model.model_type)
    targets = adapters.find_targets(model, wish.targets, defaults, modules)
    why = f"as PEFT has them for {model.model_type}" if defaults else "every linear of a block"
    rank, places = f"adapters of rank {DEFAULT_RANK}", f"on {_named(targets)}, {why}"
    assumed = []
    if wish.rank is None and wish.targets is None:
        assumed.append((f"{rank} {places}", "recipe.lora"))
    elif wish.rank is None:
        assumed.append((rank, "recipe.lora.rank"))
    elif wish.targets is None:
        assumed.append((f"adapters {places}", "recipe.lora.targets"))
    are_linears = model.has_experts and model.model_type in experts.linears_of
    if method == "qlora" and model.has_experts:
        assumed.append((_EXPERTS_GO if are_linears else _EXPERTS_STAY, "recipe.method"))
    return replace(_lora(method, wish, precision, targets), quantises_experts=are_linears), assumed


def _named(targets: Sequence[str]) -> str:
    if len(targets) <= _MOST_NAMED:
        return ", ".join(targets)
    first = targets[:_FEW_NAMED]
    return f"{', '.join(first)} and {len(targets) - len(first)} more"


def module_names(model_type: str, targets: Sequence[str]) -> tuple[str, ...]:
    """Return what PEFT is told so that these linears, and no others, get an adapter.

    PEFT matches the end of a module's path, so a shared expert's linear goes by the name of the
    dense block's.
    """
    _, modules = records.adapter_targets(model_type)
    names: list[str] = []
    covered: set[str] = set()
    for name, linears in modules.items():
        if covered < covered.union(linears) and set(linears) <= set(targets):
            names.append(name)
            covered.update(linears)
    rest = [target for target in targets if target not in covered]
    own = (x.removeprefix(_SHARED) if x.endswith("_proj") else x for x in rest)
    return tuple(dict.fromkeys((*names, *own)))


def _lora(method: str, wish: LoraWish, precision: str, targets: tuple[str, ...]) -> Lora:
    is_fp32 = precision in {"fp32", "tf32"}
    is_half = wish.dtype == "16-bit"
    full_bits = 32 if is_fp32 else 16
    rank = wish.rank or DEFAULT_RANK
    return Lora(
        rank=rank,
        alpha=wish.alpha or 2.0 * rank,
        dropout=wish.dropout,
        drops_output=wish.dropout_position == "post",
        targets=targets,
        base_bits=(wish.bits or _NF4_BITS) if method == "qlora" else full_bits,
        has_double_quantization=bool(wish.double_quantization),
        adapter_bytes=2 if is_half and not is_fp32 else 4,
    )


def _refuse_quantization(wish: LoraWish) -> None:
    for name in ("bits", "double_quantization"):
        if getattr(wish, name) is not None:
            raise InvalidInputError(
                f'{name} is of quantised weights, and method "lora" has none',
                hint="--method qlora",
                field=f"recipe.lora.{name}",
            )
