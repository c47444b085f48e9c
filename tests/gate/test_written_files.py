"""Nothing wrong is found in the files that the planner writes, whatever they hold by themselves."""

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from run_specs import EVERY

from planner import answers
from planner.gate.configurations import Asked
from planner.gate.judge import Wishes, judge_files
from planner.generate.write_bundle import write_bundle
from planner.request.schema import parse_request

LLAMA = "meta-llama/Llama-3.1-8B"
H100S = {"gpu": "h100", "gpus_per_node": 8}
PLANS: Mapping[str, dict[str, Any]] = {
    "hsdp": {
        "cluster": {**H100S, "nodes": 2},
        "strategy": {"zero_stage": 3, "data_parallel_replicate_size": 2},
    },
    "shards": {"strategy": {"zero_stage": 3}},
    "adapters": {"cluster": {"gpu": "4090", "gpus_per_node": 2}, "recipe": {"method": "qlora"}},
    "deepspeed": {"recipe": {"framework": "deepspeed"}, "strategy": {"zero_stage": 3}},
    "tensors": {"recipe": {"framework": "megatron"}, "strategy": {"tensor_parallel_size": 2}},
    "torchtitan": {"recipe": {"framework": "torchtitan"}},
}
READ = ("launch.sh", "accelerate.yaml", "ds_config.json", "sft.yaml")


@pytest.mark.parametrize("name", PLANS)
def test_nothing_is_wrong_with_what_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = {"model": LLAMA, "cluster": H100S} | PLANS[name]
    resolved, plan = answers.suggest(parse_request(request), allow_paths=False)
    folder = tmp_path / "a plan"
    write_bundle(folder, plan, answers.answer_plan(resolved, plan, None), EVERY, force=False)
    asked = Asked(model=request["model"], cluster=request["cluster"])
    targets = [path.parent for path in folder.glob("*/launch.sh")]
    assert targets
    for target in targets:
        for place in (tmp_path, target):
            monkeypatch.chdir(place)
            files = [os.path.relpath(target / file) for file in READ if (target / file).exists()]
            (verdict,) = judge_files(files, Wishes(asked=asked), io.BytesIO())
            assert [check.message for check in verdict.checks if check.level != "pass"] == []
            (note, *_) = verdict.notes
            here = os.path.relpath(folder).replace("a plan", "'a plan'")
            assert f"`planner check {here}`" in note or name == "tensors"


def test_a_changed_batch_is_still_seen(tmp_path: Path) -> None:
    resolved, plan = answers.suggest(
        parse_request({"model": LLAMA, "cluster": H100S} | PLANS["deepspeed"]), allow_paths=False
    )
    write_bundle(
        tmp_path / "plan", plan, answers.answer_plan(resolved, plan, None), EVERY, force=False
    )
    config = tmp_path / "plan" / "llama-factory" / "ds_config.json"
    config.write_text(config.read_text().replace('"train_batch_size": ', '"train_batch_size": 1'))
    files = [str(config), str(config.with_name("launch.sh"))]
    (verdict,) = judge_files(files, Wishes(), io.BytesIO())
    assert [check.code for check in verdict.checks if check.level != "pass"] == ["CFG001"]
