"""Write what axolotl's own configuration class makes of folders with a config.yaml, as JSON: [folder, GPUs] from stdin."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml
from axolotl.integrations.liger.args import LigerArgs
from axolotl.utils.distributed import _get_parallel_config_kwargs
from axolotl.utils.schemas.config import AxolotlConfigWCapabilities

CARDS = {"bf16": True, "fp8": False, "tf32": True, "compute_capability": "sm_80"}


Checked: Any = type("Checked", (AxolotlConfigWCapabilities, LigerArgs), {"__module__": __name__})
"""What axolotl makes of its class where Liger's plugin is named."""


def read(folder: str, gpus: int) -> dict[str, Any]:
    os.chdir(folder)
    said = yaml.safe_load(Path("config.yaml").read_text())
    cards, torch = {**CARDS, "n_gpu": gpus}, {"torch_version": "2.13.0"}
    checked = Checked(**said, capabilities=cards, env_capabilities=torch)
    sizes = (checked.tensor_parallel_size, checked.context_parallel_size)
    shards = (checked.dp_shard_size, checked.dp_replicate_size, bool(checked.fsdp_config))
    known = Checked.model_fields
    return {
        "unknown": sorted(said.keys() - known.keys()),
        "mesh": _get_parallel_config_kwargs(gpus, *sizes, *shards) if checked.fsdp_config else {},
        "settings": json.loads(json.dumps(checked.model_dump(), default=str)),
    }


def attempt(folder: str, gpus: int) -> dict[str, Any]:
    try:
        return read(folder, gpus)
    except Exception as error:  # noqa: BLE001 -- any of them is the answer
        return {"error": f"{type(error).__name__}: {error}"}


Path(os.environ["ANSWERS"]).write_text(json.dumps([attempt(*job) for job in json.load(sys.stdin)]))
