"""What files say of adapters -> the recipe's method: PEFT's own calls, and the words of TRL, axolotl and LLaMA-Factory."""

from typing import Any

from planner.configs.found import ADAPTERS, TRAINER, Found, Setting, Setup

_KINDS = ("adapter", "finetuning_type")
"""Axolotl's word, and LLaMA-Factory's, whose default is lora."""
_TARGETS = ("lora_target", "lora_target_modules", "target_modules")
_DOUBLE = ("bnb_4bit_use_double_quant", "use_bnb_nested_quant", "double_quantization")
_ALL = {"all", "all-linear"}


def adapter_fields(setup: Setup) -> dict[str, Any]:
    """Return method and adapters as a recipe has them, {} for full training.

    Source: peft, LoraConfig (0.18.0); axolotl, utils/schemas/peft.py (0.13); LLaMA-Factory, hparams/finetuning_args.py,
    model_args.py (0.9.5); trl, trainer/model_config.py (1.5).
    """
    every = setup.of(TRAINER, ADAPTERS)
    said = [each for each in every if _has_adapters(each)]
    if not said:
        return {}
    bits = next((each for each in map(_bits, every) if each), None)
    lora: dict[str, Any] = {} if bits is None else {"bits": bits}
    if bits and any(each.truth(*_DOUBLE) for each in every):
        lora["double_quantization"] = True
    for found in said:
        rank = found.whole("lora_rank", "lora_r", "r")
        if rank:
            lora["rank"] = rank
        targets = _targets(found)
        if targets:
            lora["targets"] = targets
    return {"method": "qlora" if bits else "lora", "lora": lora}


def unmodelled(setup: Setup) -> Setting | None:
    """Return where another way to train a part of the weights is asked for, which is not estimated."""
    kinds = setup.settings(TRAINER, *_KINDS)
    return next((each for each in kinds if each.text and each.text not in {*_LORA, "full"}), None)


_LORA = ("lora", "qlora")


def _has_adapters(found: Found) -> bool:
    if found.kind == ADAPTERS:
        return found.get("adapters") is not None
    kind = found.get(*_KINDS)
    return (kind is not None and kind.text in _LORA) or found.truth("use_peft")


def _bits(found: Found) -> int | None:
    bits = found.whole("quantization_bit")
    if bits is None:
        names = {4: "load_in_4bit", 8: "load_in_8bit"}
        bits = next((each for each, name in names.items() if found.truth(name)), None)
    return bits if bits in {4, 8} else None


def _targets(found: Found) -> str | list[str] | None:
    if found.truth("lora_target_linear"):
        return "all-linear"
    setting = found.get(*_TARGETS)
    if setting is None:
        return None
    named = setting.value if isinstance(setting.value, list) else setting.text.split(",")
    names = [str(name).strip() for name in named if str(name).strip()]
    return "all-linear" if set(names) & _ALL else (names or None)
