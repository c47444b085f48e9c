"""What CFG086 says that axolotl, LLaMA-Factory and TRL refuse, asked of their own parsers."""

import os
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from needed import need_module

pytestmark = [  # of what a file says, or of a tool's own defaults
    pytest.mark.filterwarnings(
        "ignore:Configuring FSDP using `fsdp` is deprecated:DeprecationWarning"
    ),
    pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning"),
]
TOOLS = tomllib.loads(
    (Path(__file__).parent.parent / "configs" / "exclusive.toml").read_text(encoding="utf-8")
)
CARDS = {"bf16": True, "fp8": False, "tf32": True, "compute_capability": "sm_90", "n_gpu": 1}


def axolotl(settings: dict[str, Any]) -> None:
    config: Any = import_module("axolotl.utils.schemas.config")
    config.AxolotlConfigWCapabilities(
        **settings, capabilities=CARDS, env_capabilities={"torch_version": "2.13.0"}
    )


def llamafactory(settings: dict[str, Any]) -> None:
    os.environ["DISABLE_VERSION_CHECK"] = "1"
    parser: Any = import_module("llamafactory.hparams.parser")
    parser.get_train_args(dict(settings))


def trl(settings: dict[str, Any]) -> None:
    own: Any = import_module("trl")
    parser: Any = import_module("transformers").HfArgumentParser((own.GRPOConfig, own.ModelConfig))
    parser.parse_dict(settings)


PARSERS: dict[str, Callable[[dict[str, Any]], None]] = {
    "axolotl": axolotl,
    "llamafactory": llamafactory,
    "trl": trl,
}
CASES = [
    pytest.param(name, extra, id=f"{name}-{'-'.join(map(str, extra))}")
    for name, tool in TOOLS.items()
    for extra in tool["refused"]
]


@pytest.mark.parametrize(("name", "extra"), CASES)
def test_the_tool_refuses_it(
    name: str, extra: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_module(name, get="make test-torch")
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, AssertionError)):
        PARSERS[name]({**TOOLS[name]["base"], **extra})


@pytest.mark.parametrize("name", TOOLS)
def test_the_tool_takes_the_base(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_module(name, get="make test-torch")
    monkeypatch.chdir(tmp_path)
    PARSERS[name]({**TOOLS[name]["base"]})
