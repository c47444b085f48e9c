"""Five exchanges of one process, by hand."""

from dataclasses import replace

import pytest
from conftest import JobMaker

from planner.collectives import operations
from planner.core.errors import InvalidInputError
from planner.domain.cluster import Group
from planner.domain.strategy import Layout
from planner.step_time.ledger import estimate_step_time
from planner.step_time.nn_data_parallel import EXCHANGES, data_parallel_step

PARAMETERS, VOCABULARY = 124_439_808, 50_257
S = Layout(data_parallel_replicate_size=4, micro_batch_size=4, gradient_accumulation_steps=2)


def test_one_process_exchanges_five_times(make_job: JobMaker) -> None:
    """GPT-2's parameters and gradients in fp32, 4 x 1,024 tokens of 8 B and their logits: 2 x 3 times."""
    job = make_job("gpt2", gpus=4)
    *computed, a, b, c, d, e = data_parallel_step(job, S)
    sizes = (8 * 4096, 4 * PARAMETERS, 4 * 4096 * VOCABULARY, 4, 4 * PARAMETERS)
    words = ("32.0 KiB", "475 MiB", "785 MiB", "4 B", "475 MiB")
    for term, name, size, said in zip((a, b, c, d, e), EXCHANGES, sizes, words, strict=True):
        one = operations.send(job.cluster, Group(ranks=2), size)
        assert term.name == name
        assert term.amount == pytest.approx(2 * 3 * one)
        assert term.how.startswith(f"6 x {said} / ")
    of_ddp = {"gradient_reduction", "overlap_slowdown", "parameter_gather"}
    assert computed == [t for t in estimate_step_time(job, S).terms if t.name not in of_ddp]


def test_one_process_has_one_node_and_replicas_alone(make_job: JobMaker) -> None:
    nodes = make_job("gpt2", gpus=2, cluster={"nodes": 2})
    sharded = replace(S, data_parallel_replicate_size=2, data_parallel_shard_size=2, zero_stage=1)
    for job, s in ((nodes, S), (make_job("gpt2", gpus=4), sharded)):
        with pytest.raises(InvalidInputError):
            data_parallel_step(job, s)
