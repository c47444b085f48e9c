"""What files say of adapters -> the recipe's method: PEFT's own calls, and the words of TRL, axolotl and LLaMA-Factory."""

import re
from collections.abc import Iterator
from typing import Any

from planner.configs.found import ADAPTERS, TRAINER, Found, Setup

_DOUBLE = (
    *("double_quantization", "bnb_4bit_use_double_quant", "use_bnb_nested_quant"),
    "bnb_config_kwargs.bnb_4bit_use_double_quant",
)
_ALL = {"all", "all-linear"}
_LINEAR = re.compile(r"(?:\(([\w|]{1,80})\)|\b(\w{1,40}))(_proj|_attn|_fc)\b")
"""Names of layers in a pattern of several: q_proj, or (q|k)_proj."""


def adapter_fields(setup: Setup) -> dict[str, Any]:
    """Return method and adapters as a recipe has them, {} for full training.

    Source: peft, LoraConfig (0.18.0); axolotl, utils/schemas/peft.py (0.19); LLaMA-Factory, hparams/finetuning_args.py,
    model_args.py (0.9.5); trl, trainer/model_config.py (1.16).
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
        rank = found.whole("lora_r", "r")
        if rank:
            lora["rank"] = rank
        targets = _targets(found)
        if targets:
            lora["targets"] = targets
    return {"method": "qlora" if bits else "lora", "lora": lora}


def _has_adapters(found: Found) -> bool:
    adapters = found.counting("adapters")
    return (adapters is not None and bool(adapters.text)) or found.truth("use_peft")


def _bits(found: Found) -> int | None:
    bits = found.whole("quantization_bit")
    if bits is None:
        names = {4: "load_in_4bit", 8: "load_in_8bit"}
        bits = next((each for each, name in names.items() if found.truth(name)), None)
    return bits if bits in {4, 8} else None


def _targets(found: Found) -> str | list[str] | None:
    setting = found.get("lora_target", "lora_target_modules", "target_modules")
    if setting is None:
        return None
    named = setting.value if isinstance(setting.value, list) else setting.text.split(",")
    names = [str(name).strip() for name in named if str(name).strip()]
    if any(not name.replace(".", "").isidentifier() and name not in _ALL for name in names):
        names = list(dict.fromkeys(_in_pattern(setting.text or " ".join(names))))
    return "all-linear" if set(names) & _ALL else (names or None)


def _in_pattern(text: str) -> Iterator[str]:
    """Yield the layers that a regular expression names; nobody's expression is run."""
    for several, one, ending in _LINEAR.findall(text):
        yield from (f"{name}{ending}" for name in (several or one).split("|") if name)
