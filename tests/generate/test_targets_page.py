"""docs/targets.md cannot lie: its tables are what the targets say of plans.

`pytest --update-golden tests/generate/test_targets_page.py` rewrites them; read the diff.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_specs import job_of, refusal, with_layout
from test_docs import check_block
from test_generate import SPEC

from planner.catalog import records
from planner.generate.launchers import launchers
from planner.generate.run_spec import Adapters
from planner.targets import targets_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/targets.md"
LLAMA = json.loads((ROOT / "data/models/meta-llama--Llama-3.1-8B.json").read_text())["config"]
LAYERS = LLAMA["num_hidden_layers"]

LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "DDP": {"zero_stage": 0},
    "ZeRO-1": {"zero_stage": 1},
    "ZeRO-2": {"zero_stage": 2},
    "ZeRO-3": {"zero_stage": 3},
    "HSDP": {
        "zero_stage": 3,
        "data_parallel_replicate_size": 2,
        "data_parallel_shard_size": 4,
    },
    "local SGD": {"zero_stage": 0, "synchronize_every": 8},
    "offload of the optimizer": {"offload": "optimizer"},
    "offload of parameters too": {"offload": "optimizer+parameters"},
    "selective recompute": {"recompute": "selective"},
    "tensor": {"tensor_parallel_size": 2},
    "tensor and sequence": {"tensor_parallel_size": 2, "sequence_parallel": True},
    "pipeline": {"pipeline_parallel_size": 2, "layers_per_stage": (LAYERS // 2,) * 2},
    "context": {"context_parallel_size": 2},
}
"""Fields of a layout; where no ZeRO stage is given, any that the target writes will do."""

LORA = Adapters(rank=16, alpha=32.0, dropout=0.0, modules=("q_proj", "v_proj"), base_bits=16)
QLORA = replace(LORA, base_bits=4)
TRAINED: Mapping[str, Mapping[str, Any]] = {
    "all weights, in the config's dtype": {"config_dtype": "bfloat16"},
    "LoRA, replicas": {"adapters": LORA, "zero_stage": 0},
    "LoRA, shards": {"adapters": LORA, "zero_stage": 3},
    "LoRA, offload": {"adapters": LORA, "zero_stage": 3, "offload": "optimizer+parameters"},
    "LoRA, tensor parallel": {"adapters": LORA, "tensor_parallel_size": 2},
    "QLoRA, replicas": {"adapters": QLORA, "zero_stage": 0},
    "QLoRA, shards": {"adapters": QLORA, "zero_stage": 3},
}
"""Fields of a spec, as for the layouts."""


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def is_written(framework: str, target: str, layout: Mapping[str, Any]) -> bool:
    stages = (layout["zero_stage"],) if "zero_stage" in layout else (0, 1, 2, 3)
    model = {"model": "meta-llama/Llama-3.1-8B", "model_config": LLAMA, "framework": framework}
    specs = [with_layout(SPEC, **{**model, **layout, "zero_stage": stage}) for stage in stages]
    return any(
        not refusal(spec, target)
        # DeepSpeed and Megatron-LM train an fp32 copy, whatever the config says.
        and job_of(spec).is_in_config_dtype == bool(spec.config_dtype)
        for spec in specs
    )


def layouts_text(
    targets: Mapping[str, Sequence[str]], layouts: Mapping[str, Mapping[str, Any]], head: str
) -> str:
    columns = [
        (framework, target)
        for framework, its in targets.items()
        if framework != "accelerate"  # Its targets are torch's.
        for target in its
    ]
    names = [
        f"{target} with DeepSpeed" if framework == "deepspeed" else target
        for framework, target in columns
    ]
    rows = [
        [name, *("yes" if is_written(*column, layout) else "" for column in columns)]
        for name, layout in layouts.items()
    ]
    return markdown([head, *names], rows)


def test_the_page_is_what_the_targets_say(request: pytest.FixtureRequest) -> None:
    update = bool(request.config.getoption("--update-golden"))
    names = sorted(records.framework_names(), key=lambda name: (name != "torch", name))
    targets = {name: targets_of(name) for name in names}
    frameworks = [
        (
            name,
            ", ".join(targets_of(name, is_tuned=True)) or "none yet",
            ", ".join(its) or "none yet",
        )
        for name, its in targets.items()
    ]
    rows = [
        (
            f"`--launcher {name}`",
            " ".join(f"`{path}`" for path in each.templates),
            str(each.least_nodes),
            ", ".join(each.targets) or "all",
        )
        for name, each in launchers().items()
    ]
    for marker, body in (
        ("frameworks", markdown(("`--framework`", "of fine-tuning", "of all else"), frameworks)),
        ("layouts", layouts_text(targets, LAYOUTS, "layout")),
        ("trained", layouts_text(targets, TRAINED, "trained")),
        ("launchers", markdown(("launcher", "files", "from nodes", "targets"), rows)),
    ):
        check_block(marker, body, update=update, page=PAGE)
