import numpy as np
import pytest
from conftest import JobMaker

from planner.catalog.choice import prices
from planner.domain.strategy import Layout
from planner.search.effort import effort_factor
from planner.search.search import search

THREE_D = Layout(
    tensor_parallel_size=2, pipeline_parallel_size=2, data_parallel_shard_size=2, zero_stage=1
)


@pytest.mark.parametrize(
    ("framework", "code_changes"), [("torch", 2), ("deepspeed", 1), ("megatron", 0)]
)
def test_a_technique_has_a_price_where_it_changes_the_models_code(
    make_job: JobMaker, framework: str, code_changes: int
) -> None:
    job = make_job(recipe={"framework": framework})
    expected = (1 + prices().code_change) ** code_changes
    assert effort_factor(job, THREE_D) == pytest.approx(expected)
    assert effort_factor(job, Layout()) == 1


def test_ranks_that_share_sequences_gather_shards_together(make_job: JobMaker) -> None:
    job = make_job(gpus=8, cluster={"nodes": 8}, recipe={"framework": "torchtitan"})
    whole, divided = (
        Layout(data_parallel_shard_size=64 // ranks, context_parallel_size=ranks, zero_stage=3)
        for ranks in (1, 8)
    )
    assert effort_factor(job, divided) == effort_factor(job, whole) > 1


@pytest.mark.parametrize(
    ("cluster", "shards", "doublings"),
    [((8, 16), 128, 2), ((8, 8), 64, 1), ((8, 16), 8, 0), ((8, 4), 32, 0)],
)
def test_gathers_over_the_network_cost_more_the_more_ranks_there_are(
    make_job: JobMaker, cluster: tuple[int, int], shards: int, doublings: int
) -> None:
    gpus, nodes = cluster
    s = Layout(
        data_parallel_replicate_size=gpus * nodes // shards,
        data_parallel_shard_size=shards,
        zero_stage=3,
    )
    job = make_job(gpus=gpus, cluster={"nodes": nodes})
    expected = 1 + doublings * prices().wide_shards_per_doubling
    assert effort_factor(job, s) == pytest.approx(expected)


def test_gathers_within_one_node_cost_nothing_more(make_job: JobMaker) -> None:
    s = Layout(data_parallel_shard_size=128, zero_stage=3)
    one_node = make_job(gpus=128, cluster={"intra_node": "nvswitch-a100"})
    assert (one_node.cluster.nodes, effort_factor(one_node, s)) == (1, 1)
    in_all = make_job(gpus=128)
    assert in_all.cluster.nodes == 16
    assert effort_factor(in_all, s) == effort_factor(make_job(gpus=8, cluster={"nodes": 16}), s) > 1


def test_a_search_weighs_the_time_of_what_divides_the_model(make_job: JobMaker) -> None:
    found = search(make_job("gpt2", gpus=2, recipe={"global_batch_size": 4}))
    divided = np.asarray(found.table.divides_model)
    assert np.any(divided & found.fits)
    ratio = found.weighted_seconds[found.fits] / found.step_seconds[found.fits]
    assert np.all((ratio > 1) == divided[found.fits])
