"""The simplest layout that has what is pinned: 4 GPUs, 48 sequences a step, by hand."""

import pytest
from conftest import JobMaker

from planner.search.pinned_fields import AtLeast, PinnedFields, simplest_layout


@pytest.mark.parametrize(
    ("pinned", "ranks", "batch"),
    [
        ({}, (4, 1), (1, 12)),
        ({"micro_batch_size": 2}, (4, 1), (2, 6)),
        ({"micro_batch_size": 5}, (4, 1), (5, 2)),
        ({"micro_batch_size": 32}, (4, 1), (32, 1)),
        ({"gradient_accumulation_steps": 3}, (4, 1), (4, 3)),
        ({"gradient_accumulation_steps": 100}, (4, 1), (1, 100)),
        ({"tensor_parallel_size": 2}, (2, 1), (1, 24)),
        ({"tensor_parallel_size": 8}, (1, 1), (1, 48)),
        ({"zero_stage": 3}, (1, 4), (1, 12)),
        ({"zero_stage": 3, "data_parallel_shard_size": 2}, (2, 2), (1, 12)),
        ({"data_parallel_shard_size": 8}, (1, 8), (1, 6)),
        ({"data_parallel_replicate_size": 2}, (2, 2), (1, 12)),
        ({"data_parallel_replicate_size": 8}, (8, 1), (1, 6)),
        ({"data_parallel_size": 2}, (2, 1), (1, 24)),
        ({"data_parallel_size": AtLeast(2)}, (4, 1), (1, 12)),
        ({"data_parallel_size": AtLeast(8)}, (8, 1), (1, 6)),
        ({"data_parallel_shard_size": AtLeast(2)}, (2, 2), (1, 12)),
        ({"data_parallel_shard_size": AtLeast(2), "data_parallel_replicate_size": 1}, (1, 4), (1, 12)),
        ({"data_parallel_shard_size": 2, "data_parallel_replicate_size": AtLeast(1)}, (2, 2), (1, 12)),
        ({"data_parallel_shard_size": 2, "data_parallel_replicate_size": AtLeast(4)}, (4, 2), (1, 6)),
    ],
)  # fmt: skip
def test_what_is_not_pinned_follows_from_gpus_and_batch(
    make_job: JobMaker, pinned: PinnedFields, ranks: tuple[int, int], batch: tuple[int, int]
) -> None:
    s = simplest_layout(make_job(gpus=4, recipe={"global_batch_size": 48}), pinned)
    assert (s.data_parallel_replicate_size, s.data_parallel_shard_size) == ranks
    assert (s.micro_batch_size, s.gradient_accumulation_steps) == batch
