"""Write what LLaMA-Factory's own arguments make of folders with a config.yaml, as JSON; the folders are read from stdin."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from llamafactory.data.converter import get_dataset_converter
from llamafactory.data.parser import get_dataset_list
from llamafactory.hparams import get_train_args, parser
from transformers import training_args

# As on several GPUs from Ampere on.
own: Any = parser
arguments: Any = training_args
for module in (own, arguments):
    module.is_torch_bf16_gpu_available = lambda: True
arguments.is_torch_tf32_available = lambda: True
arguments.TrainingArguments.parallel_mode = arguments.ParallelMode.DISTRIBUTED

ROWS = {
    "chat": {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]},
    "pairs": {"prompt": "Q", "completion": "A"},
    "text": {"text": "Q"},
}


def read(folder: str) -> dict[str, Any]:
    os.chdir(folder)
    sys.argv = ["launcher", "config.yaml"]
    model, data, training, finetuning, _ = get_train_args()
    deepspeed = getattr(training, "hf_deepspeed_config", None)
    return {
        "model": shown(model),
        "data": shown(data),
        "training": shown(training),
        "finetuning": shown(finetuning),
        "stage": deepspeed and deepspeed.config["zero_optimization"]["stage"],
        "samples": {
            name: get_dataset_converter(each.formatting, each, data)(row)
            for name, row in ROWS.items()
            for each in get_dataset_list([name], ".")
        },
    }


def shown(arguments: Any) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(vars(arguments), default=str))
    return values


def attempt(folder: str) -> dict[str, Any]:
    try:
        return read(folder)
    except Exception as error:  # noqa: BLE001 -- any of them is the answer
        return {"error": f"{type(error).__name__}: {error}"}


Path(os.environ["ANSWERS"]).write_text(json.dumps([*map(attempt, json.load(sys.stdin))]))
