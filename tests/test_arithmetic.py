"""Every line of a ledger says its own amount: the text alone is evaluated, rounding and all."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import JobMaker
from printed import evaluate

from planner.core.term import Term, size
from planner.domain.job import Job
from planner.domain.strategy import num_rows, rows
from planner.memory.host import estimate_host_memory
from planner.memory.ledger import stage_memories
from planner.search.candidate import Candidate, estimate, estimate_rows
from planner.search.pinned_fields import PinnedFields
from planner.search.space import strategies
from planner.search.training_run import start_up

LLAMA, MIXTURE = "meta-llama/Llama-2-7b-hf", "Qwen/Qwen3-30B-A3B"
NODES = {"gpu": "h100-sxm-80gb", "nodes": 2, "inter_node": "infiniband-ndr"}
JOBS: dict[str, dict[str, Any]] = {
    "gpt2 in torch": {"model": "gpt2", "gpus": 8},
    "pipelines in Megatron": {
        "model": LLAMA,
        "cluster": NODES,
        "recipe": {"framework": "megatron", "global_batch_size": 64},
    },
    "a mixture of experts": {
        "model": MIXTURE,
        "cluster": NODES,
        "recipe": {"framework": "megatron", "global_batch_size": 32},
    },
    "LoRA": {"model": LLAMA, "gpus": 4, "recipe": {"method": "lora"}},
    "LoRA beside flat parameters": {
        "model": LLAMA,
        "gpus": 4,
        "recipe": {"method": "lora", "framework": "accelerate", "framework_version": "1.0.1"},
    },
    "QLoRA": {"model": LLAMA, "gpus": 4, "recipe": {"method": "qlora", "precision": "bf16"}},
    "a loss in chunks": {
        "model": LLAMA,
        "gpus": 8,
        "recipe": {"loss": "chunked", "sequence_length": 16_384},
    },
    "Liger's loss in DeepSpeed": {
        "model": "meta-llama/Llama-3.1-8B",
        "gpus": 8,
        "recipe": {"framework": "deepspeed", "loss": "fused", "sequence_length": 32_768},
    },
    "an encoder": {
        "model": "google-bert/bert-base-uncased",
        "gpus": 4,
        "recipe": {"sequence_length": 512, "precision": "fp16-mixed"},
    },
    "offload in DeepSpeed": {
        "model": LLAMA,
        "gpus": 8,
        "recipe": {"framework": "deepspeed", "global_batch_size": 64},
    },
    "context in torchtitan": {
        "model": "meta-llama/Llama-3.1-8B",
        "cluster": NODES,
        "recipe": {"framework": "torchtitan", "sequence_length": 32_768, "global_batch_size": 32},
    },
    "nanotron": {
        "model": "meta-llama/Llama-3.2-1B",
        "gpus": 8,
        "recipe": {"framework": "nanotron", "global_batch_size": 64},
    },
}
LAYOUTS = 250
"""Of each job."""


OF_SOME_LAYERS = {"recompute_layers": 3, "activation_offload_layers": 2}


def sampled(job: Job, pinned: PinnedFields | None = None) -> tuple[Candidate, ...]:
    """Return estimates of random layouts of a job, made as a table."""
    table = strategies(job, pinned)
    dice = np.random.default_rng(num_rows(table))
    return estimate_rows(job, rows(table, dice.integers(num_rows(table), size=LAYOUTS)))


def lines(terms: Iterable[Term]) -> Iterator[Term]:
    """Yield terms and what they open into."""
    for term in terms:
        yield term
        yield from term.parts


def of_layout(job: Job, candidate: Candidate) -> Iterator[Term]:
    """Yield every line that any door shows of a layout."""
    host = estimate_host_memory(job, candidate.strategy)
    yield from lines(candidate.memory.terms)
    yield from lines(candidate.step_time.terms)
    yield from (*host.terms, host.loading, start_up(job))


@pytest.mark.parametrize("name", JOBS)
def test_every_line_is_its_own_arithmetic(make_job: JobMaker, name: str) -> None:
    job = make_job(**JOBS[name])
    widths = []
    for candidate in sampled(job):
        for term in of_layout(job, candidate):
            said, amount = evaluate(term.how), float(term.amount)
            assert said.holds(amount), f"{candidate.strategy}: {term.name} {amount} {term.how}"
            if amount:
                widths.append(said.width)
    assert np.quantile(widths, 0.95) < 0.02


@pytest.mark.parametrize("name", JOBS)
def test_a_row_of_a_table_and_the_layout_alone_say_the_same(make_job: JobMaker, name: str) -> None:
    job = make_job(**JOBS[name])
    for one in sampled(job)[::25]:
        alone = estimate(job, one.strategy)
        said = {term.name: term for term in (*alone.memory.terms, *alone.step_time.terms)}
        for term in (*one.memory.terms, *one.step_time.terms):
            for line in lines((term,)) if term.amount else ():
                same = [other for other in lines((said[term.name],)) if other.name == line.name]
                assert evaluate(same[0].how).holds(float(line.amount))


@pytest.mark.parametrize(
    ("name", "pinned"),
    [
        ("pipelines in Megatron", OF_SOME_LAYERS),
        ("context in torchtitan", OF_SOME_LAYERS),
        ("a mixture of experts", {"expert_tensor_parallel_size": 1}),
    ],
)
def test_fields_that_are_only_pinned_are_their_own_arithmetic(
    make_job: JobMaker, name: str, pinned: PinnedFields
) -> None:
    job = make_job(**JOBS[name])
    for number, one in enumerate(sampled(job, pinned)):
        for term in of_layout(job, one):
            assert evaluate(term.how).holds(float(term.amount)), f"{term.name} {term.how}"
        if number % 25 == 0:
            alone = estimate(job, one.strategy)
            assert alone.memory.peak_bytes == pytest.approx(one.memory.peak_bytes)
            assert alone.step_time.step_seconds == pytest.approx(one.step_time.step_seconds)


def test_every_stage_of_a_pipeline_is_its_own_arithmetic(make_job: JobMaker) -> None:
    job = make_job(**JOBS["a mixture of experts"])
    layouts = [candidate.strategy for candidate in sampled(job)]
    for layout in [one for one in layouts if one.pipeline_parallel_size > 1][:40]:
        for memory in stage_memories(job, layout):
            for term in memory.terms:
                assert evaluate(term.how).holds(float(term.amount)), term.how


def test_a_line_that_is_off_is_found() -> None:
    line = Term(name="x", arithmetic=size(942 * 2**20), source="").how
    assert evaluate(line).holds(942.4 * 2**20)
    assert not evaluate(line).holds(943 * 2**20)
    assert not evaluate("2 B x 493,961,216").holds(260 * 2**20)
    assert evaluate("8 micro-batches x (3.50 ms of matmuls + 20.0 us launches)").holds(0.02816)
    assert not evaluate("8 micro-batches x (3.50 ms of matmuls + 20.0 us launches)").holds(0.0283)
    assert evaluate("max(2 B x 10 of the head, 3 B x 4 parameters) x 2").holds(40)
    with pytest.raises(ValueError, match="outside"):
        evaluate("2 B x 10 parameters of 12")
