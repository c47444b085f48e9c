"""The scripts that the planner writes have none of the faults that it looks for."""

from typing import Any

import pytest
from run_specs import EVERY

from planner import answers
from planner.doctor.scripts import look_at
from planner.generate.write_bundle import bundle_files
from planner.request.schema import parse_request

JOBS: dict[str, dict[str, Any]] = {
    "data parallel": {"model": "gpt2", "cluster": {"gpu": "a100", "gpus_per_node": 4}},
    "adapters": {
        "model": "meta-llama/Llama-3.1-8B",
        "cluster": {"gpu": "4090", "gpus_per_node": 2},
        "recipe": {"method": "lora"},
    },
    "sharded": {
        "model": "meta-llama/Llama-2-7b-hf",
        "cluster": {"gpu": "a100-40gb", "gpus_per_node": 8},
    },
}


@pytest.mark.parametrize("name", JOBS)
def test_nothing_is_found_in_what_is_written(name: str) -> None:
    request = parse_request(JOBS[name])
    resolved, plan = answers.suggest(request, allow_paths=False)
    files = bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)
    scripts = {path: text for path, text in files.items() if path.endswith(".py")}
    assert scripts
    assert {path: look_at(text.encode(), path) for path, text in scripts.items()} == dict.fromkeys(
        scripts, ()
    )
