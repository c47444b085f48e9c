import numpy as np
import pytest
from conftest import JobMaker

from planner.domain.strategy import Layout
from planner.search.code_changes import GAIN_PER_CHANGE, code_change_factor, num_code_changes
from planner.search.search import search

THREE_D = Layout(
    tensor_parallel_size=2, pipeline_parallel_size=2, data_parallel_shard_size=2, zero_stage=1
)


@pytest.mark.parametrize(
    ("framework", "changes"), [("torch", 2), ("deepspeed", 1), ("megatron", 0)]
)
def test_a_technique_counts_where_the_framework_does_not_bring_it(
    make_job: JobMaker, framework: str, changes: int
) -> None:
    assert num_code_changes(make_job(recipe={"framework": framework}), THREE_D) == changes


def test_each_technique_must_be_earned() -> None:
    assert code_change_factor(0) == 1
    assert code_change_factor(np.array([1, 2])) == pytest.approx(
        [1 + GAIN_PER_CHANGE, (1 + GAIN_PER_CHANGE) ** 2]
    )


def test_a_search_weighs_the_time_of_what_changes_the_model(make_job: JobMaker) -> None:
    found = search(make_job("gpt2", gpus=2, recipe={"global_batch_size": 4}))
    changed = np.asarray(num_code_changes(found.job, found.table) > 0)
    assert np.any(changed & found.fits)
    ratio = found.weighted_seconds[found.fits] / found.step_seconds[found.fits]
    assert np.all((ratio > 1) == changed[found.fits])
