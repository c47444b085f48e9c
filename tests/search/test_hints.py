"""A size that a hint offers is refused by no other limit of the same size."""

import re
from typing import Any

import pytest
from conftest import JobMaker
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.domain.job import Job
from planner.domain.strategy import Layout, divisors
from planner.search.limits import violations

OF_SIZES = {
    *("LAY002", "LAY013", "LAY020", "LAY021", "LAY003"),
    *("LAY025", "LAY004", "LAY015", "LAY026"),
}
TILES = re.compile(r"two pieces per rank")


def offered(hint: str) -> list[int]:
    """Return the sizes that a hint names: those of a list, or the divisors of a number."""
    numbers = [
        int(each.replace(",", ""))
        for each in re.findall(r"\d[\d,]*(?<!,)", hint.partition("use ")[2])
    ]
    return divisors(numbers[0]) if "divisor of" in hint else numbers


CASES = st.fixed_dictionaries(
    {
        "heads": st.sampled_from([12, 14, 24, 28, 32, 40]),
        "shared": st.sampled_from([1, 2, 4, 8]),
        "framework": st.sampled_from(["megatron", "deepspeed", "torch", "torchtitan"]),
        "field": st.sampled_from(
            [f"{axis}_parallel_size" for axis in ("tensor", "context", "expert")]
        ),
        "size": st.integers(2, 20),
        "tensor": st.sampled_from([1, 2, 4]),
        "length": st.sampled_from([4096, 6146, 8191, 65536]),
        "nodes": st.sampled_from([1, 2]),
    }
)


def job_and_layout(make_job: JobMaker, case: dict[str, Any]) -> tuple[Job, dict[str, Any]]:
    heads, shared = case["heads"], case["shared"]
    config = {"model_type": "mixtral", "num_attention_heads": heads, "vocab_size": 32000}
    config |= {"num_key_value_heads": shared if heads % shared == 0 else 1, "num_hidden_layers": 4}
    config |= {"hidden_size": 64 * heads, "intermediate_size": 1024, "num_local_experts": 8}
    recipe = {
        "framework": case["framework"],
        "sequence_length": case["length"],
        "global_batch_size": 64,
    }
    job = make_job(config, gpus=8, recipe=recipe, cluster={"nodes": case["nodes"]})
    sizes = {"tensor_parallel_size": case["tensor"], case["field"]: case["size"]}
    return job, {"data_parallel_shard_size": 4, **sizes}


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(case=CASES)
def test_what_a_hint_offers_is_not_refused(make_job: JobMaker, case: dict[str, Any]) -> None:
    job, sizes = job_and_layout(make_job, case)
    field = case["field"]
    for limit, breach in violations(job, Layout(**sizes)):
        if limit.code not in OF_SIZES or not breach.field.endswith(field):
            continue
        if "use " not in breach.advice:
            continue
        for right in offered(breach.advice):
            mended = violations(job, Layout(**sizes | {field: right}))
            refused = {
                other.code: each.advice
                for other, each in mended
                if other.code in OF_SIZES and each.field.endswith(field)
            }
            short = {code for code, hint in refused.items() if TILES.match(hint)}
            assert set(refused) - short == set(), (breach.advice, right)


@pytest.mark.parametrize(
    ("tensor", "context", "right"), [(2, 4, {1, 2, 7, 14}), (1, 8, {1, 2, 4, 7, 14, 28})]
)
def test_heads_of_a_tensor_parallel_rank_are_what_is_divided(
    make_job: JobMaker, tensor: int, context: int, right: set[int]
) -> None:
    recipe = {"framework": "deepspeed", "sequence_length": 65536 * 7, "global_batch_size": 8}
    job = make_job("Qwen/Qwen2.5-7B", gpus=tensor * context, recipe=recipe)
    layout = Layout(tensor_parallel_size=tensor, context_parallel_size=context)
    (hint,) = [each.advice for limit, each in violations(job, layout) if limit.code == "LAY015"]
    assert set(offered(hint)) == right
