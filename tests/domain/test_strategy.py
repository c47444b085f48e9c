from typing import Any

import pytest
from conftest import JobMaker
from hypothesis import given
from hypothesis import strategies as st

from planner.domain.strategy import (
    Layout,
    Offload,
    divisors,
    family_keys,
    nearest_multiples,
    num_rows,
)
from planner.search.space import strategies


@given(st.integers(1, 5000))
def test_divisors_are_all_that_divide(number: int) -> None:
    assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]


def test_nearest_multiples_are_below_and_above() -> None:
    assert nearest_multiples(10, 4).endswith("nearest: 8 or 12")
    assert nearest_multiples(3, 8).endswith("nearest: 8")


def test_families_are_named_by_stage() -> None:
    assert [Layout(zero_stage=s).family for s in range(4)] == [
        "ddp",
        "zero-1",
        "zero-2",
        "zero-3",
    ]


@pytest.mark.parametrize(
    ("fields", "family"),
    [
        ({"data_parallel_replicate_size": 4}, "ddp"),
        ({"data_parallel_replicate_size": 4, "synchronize_every": 8}, "local-sgd"),
        (
            {
                "data_parallel_replicate_size": 2,
                "data_parallel_shard_size": 2,
                "zero_stage": 3,
            },
            "hsdp",
        ),
        ({"tensor_parallel_size": 4}, "tp"),
        ({"tensor_parallel_size": 2, "data_parallel_replicate_size": 2}, "tp+ddp"),
        (
            {
                "tensor_parallel_size": 2,
                "pipeline_parallel_size": 2,
                "data_parallel_shard_size": 2,
                "zero_stage": 1,
            },
            "tp+pp+zero-1",
        ),
        ({"context_parallel_size": 4, "zero_stage": 3}, "cp+zero-3"),
        (
            {"data_parallel_shard_size": 4, "zero_stage": 3, "offload": Offload.OPTIMIZER},
            "zero-3+offload",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_family_names_every_technique(fields: dict[str, Any], family: str) -> None:
    assert Layout(**fields).family == family


def test_rows_share_a_key_exactly_where_they_share_a_family(make_job: JobMaker) -> None:
    table = strategies(make_job(gpus=4, recipe={"global_batch_size": 8, "framework": "deepspeed"}))
    keys = family_keys(table)
    named: dict[int, set[str]] = {}
    for row in range(num_rows(table)):
        named.setdefault(int(keys[row]), set()).add(table.at(row).family)
    assert all(len(families) == 1 for families in named.values())
    assert len({next(iter(families)) for families in named.values()}) == len(named)
