"""Megatron-LM's arguments for experts, as its parallel_state divides the ranks."""

import pytest
from run_specs import EVERY

from planner.advice.plan import make_plan
from planner.answers import answer_plan
from planner.generate.write_bundle import bundle_files
from planner.request.schema import parse_request, resolve


@pytest.mark.parametrize(
    ("gpu", "nodes", "strategy"),
    [
        ("h200", 1, {"tensor_parallel_size": 2, "expert_parallel_size": 8}),
        ("a100", 2, {"tensor_parallel_size": 4, "expert_parallel_size": 8}),
        (
            "a100",
            2,
            {"tensor_parallel_size": 4, "pipeline_parallel_size": 2, "expert_parallel_size": 4},
        ),
        ("h200", 1, {"tensor_parallel_size": 1, "expert_parallel_size": 8}),
        (
            "h200",
            2,
            {
                "tensor_parallel_size": 2,
                "expert_parallel_size": 4,
                "expert_tensor_parallel_size": 1,
            },
        ),
    ],
)
def test_the_ranks_of_an_expert_multiply_to_no_more_than_there_are(
    gpu: str, nodes: int, strategy: dict[str, int]
) -> None:
    request = parse_request(
        {
            "model": "mistralai/Mixtral-8x7B-v0.1",
            "cluster": {"gpu": gpu, "gpus_per_node": 8, "nodes": nodes},
            "recipe": {"framework": "megatron", "global_batch_size": 128},
            "strategy": strategy,
        }
    )
    resolved = resolve(request, allow_paths=False)
    plan = make_plan(resolved.job, strategy)
    files = bundle_files(plan, answer_plan(resolved, plan, None), EVERY)
    words = files["megatron/launch.sh"].split()
    expert, tensor, pipeline = (
        int(words[words.index(f"--{name}-parallel-size") + 1])
        for name in ("expert-model", "expert-tensor", "pipeline-model")
    )
    assert expert == strategy["expert_parallel_size"]
    assert plan.job.cluster.world_size % (expert * tensor * pipeline) == 0
    assert tensor == strategy.get("expert_tensor_parallel_size", tensor)
    assert tensor == plan.chosen.strategy.ranks_per_expert
