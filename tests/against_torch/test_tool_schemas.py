"""Every key of the installed packages is classified: what it means for us, no effect, or not modelled."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from importlib import import_module

import pytest
from needed import need_module

from planner.catalog.configs import known_keys, tool, trainer_fields

TRL = ("SFT", "DPO", "GRPO", "KTO", "Reward", "RLOO", "Model")


def of_classes(module: str, names: Iterable[str]) -> set[str]:
    found = import_module(module)
    return {field.name for name in names for field in fields(getattr(found, name))}


def of_trl() -> set[str]:
    names = (*(f"{name}Config" for name in TRL), "ScriptArguments")
    return of_classes("trl", names)


def of_axolotl() -> set[str]:
    config = import_module("axolotl.utils.schemas.config")
    return set(config.AxolotlInputConfig.model_fields)


def of_llamafactory() -> set[str]:
    os.environ["DISABLE_VERSION_CHECK"] = "1"
    found = import_module("llamafactory.hparams")
    every = ("Model", "Data", "Training", "Finetuning", "Generating")
    return {field.name for name in every for field in fields(getattr(found, f"{name}Arguments"))}


def of_megatron() -> set[str]:
    return (
        of_classes("megatron.core.transformer.transformer_config", ["MLATransformerConfig"])
        | of_classes("megatron.core.optimizer", ["OptimizerConfig"])
        | of_classes("megatron.core.distributed", ["DistributedDataParallelConfig"])
    )


PACKAGES: dict[str, Callable[[], set[str]]] = {
    "trl": of_trl,
    "axolotl": of_axolotl,
    "llamafactory": of_llamafactory,
    "megatron": of_megatron,
    "trainer": lambda: of_classes("transformers", ["TrainingArguments"]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PACKAGES)
def test_every_key_of_the_package_is_classified(name: str) -> None:
    package = {"trainer": "transformers"}.get(name, name)
    need_module(package, get="make test-torch")
    record = tool(name)
    schema = PACKAGES[name]()
    assert schema - record.known == set(), "new in the package"
    assert record.known - schema - set(record.others) == set(), "gone from the package"


def dotted(name: str) -> Iterator[str]:
    for section, keys in known_keys(name).sections.items():
        yield from (key if section == "top" else f"{section}.{key}" for key in keys)


@pytest.mark.parametrize("name", ["accelerate", "deepspeed", "torchtitan"])
def test_every_key_whose_schema_is_compared_elsewhere_is_classified(name: str) -> None:
    """`test_config_rules` holds data/configs/NAME.toml against the package."""
    record = tool(name)
    assert record.version == known_keys(name).version
    assert set(dotted(name)) - record.known == set()


def test_defaults_are_those_of_the_packages() -> None:
    assert tool("trainer").known >= trainer_fields().names
    need_module("trl", get="make test-torch")
    of_sft = {field.name: field.default for field in fields(import_module("trl").SFTConfig)}
    ours = dict(tool("trl").defaults)
    assert (ours.pop("bf16"), of_sft["bf16"]) == (True, None), "None is on, beside fp16 off"
    assert ours == {key: of_sft[key] for key in ours}
