import numpy as np
import pytest
from conftest import JobMaker

from planner.candidate import estimate
from planner.memory import PHASES, estimate_memory
from planner.strategy import Strategy, num_rows, strategies
from planner.units import GIB

GPT2 = 124_439_808
"""12 blocks of 7,087,872, plus (50,257 + 1,024) x 768 embeddings and a final norm."""


def one_gpu(micro_batch_size: int, recompute: str = "none") -> Strategy:
    return Strategy(micro_batch_size=micro_batch_size, recompute=recompute)


def terms(job_memory: object) -> dict[str, float]:
    return {term.name: float(term.amount) for term in job_memory.terms}  # type: ignore[attr-defined]


def test_adam_in_fp32_holds_sixteen_bytes_per_parameter(make_job: JobMaker) -> None:
    job = make_job(gpus=2, recipe={"precision": "fp32", "global_batch_size": 8})
    ledger = terms(estimate_memory(job, Strategy(data_parallel_replicate_size=2)))
    assert ledger["parameters"] == 4 * GPT2
    assert ledger["gradients"] == 4 * GPT2
    assert ledger["optimizer_states"] == 8 * GPT2


@pytest.mark.parametrize(
    ("stage", "parameters", "gradients", "states"),
    [(0, 4, 4, 8), (1, 4, 4, 8 / 4), (2, 4 / 4, 4 / 4, 8 / 4), (3, 4 / 4, 4 / 4, 8 / 4)],
)
def test_each_zero_stage_divides_what_its_paper_says(
    make_job: JobMaker, stage: int, parameters: float, gradients: float, states: float
) -> None:
    job = make_job(gpus=4, recipe={"global_batch_size": 8})
    strategy = Strategy(
        data_parallel_replicate_size=1 if stage else 4,
        data_parallel_shard_size=4 if stage else 1,
        zero_stage=stage,
        gradient_accumulation_steps=2,
    )
    ledger = terms(estimate_memory(job, strategy))
    assert ledger["parameters"] == parameters * GPT2
    assert ledger["gradients"] == gradients * GPT2
    assert ledger["optimizer_states"] == states * GPT2


def test_terms_sum_to_reserved_and_all_but_the_context_to_the_peak(make_job: JobMaker) -> None:
    job = make_job()
    table = estimate(job, strategies(job))
    for row in range(num_rows(table.strategy)):
        memory = table.at(row).memory
        amounts = terms(memory)
        assert sum(amounts.values()) == pytest.approx(memory.reserved_bytes)
        context = amounts.pop("framework_and_context")
        assert context > 0
        assert sum(amounts.values()) == pytest.approx(memory.peak_bytes)


PEAKS = [
    # model, batch, length, precision, attention, recompute: GiB that PyTorch allocates at its peak.
    # Measured with the real transformers 5.23 models in PyTorch 2.13 under fake tensors.
    ("gpt2", 8, 1024, "fp32", "sdpa", "none", 14.0662),
    ("gpt2", 8, 1024, "fp32", "eager", "none", 24.1868),
    ("gpt2", 8, 1024, "bf16-mixed", "sdpa", "none", 12.3159),
    ("gpt2", 8, 1024, "bf16-mixed", "sdpa", "full", 6.3862),
    ("gpt2", 16, 512, "bf16", "sdpa", "none", 9.4099),
    ("gpt2", 2, 256, "fp32", "sdpa", "none", 2.3179),
    ("gpt2-medium", 4, 1024, "bf16-mixed", "eager", "none", 25.5158),
    ("Qwen/Qwen2.5-0.5B", 2, 2048, "bf16-mixed", "sdpa", "none", 19.5078),
    ("Qwen/Qwen2.5-0.5B", 2, 4096, "bf16", "sdpa", "full", 17.0548),
    ("meta-llama/Llama-3.2-1B", 1, 4096, "bf16", "sdpa", "none", 19.4736),
]


@pytest.mark.parametrize(
    ("model", "batch", "length", "precision", "attention", "recompute", "gib"), PEAKS
)
def test_peak_is_what_pytorch_allocates_for_the_real_model(  # noqa: PLR0913 - one row of the table
    make_job: JobMaker,
    model: str,
    batch: int,
    length: int,
    precision: str,
    attention: str,
    recompute: str,
    gib: float,
) -> None:
    recipe = {
        "precision": precision,
        "attention": attention,
        "sequence_length": length,
        "global_batch_size": batch,
    }
    job = make_job(model, gpus=1, recipe=recipe)
    memory = estimate_memory(job, one_gpu(batch, recompute))
    assert memory.peak_bytes / GIB == pytest.approx(gib, rel=0.01)


SHARDED_PEAKS = [
    # model, ranks, ZeRO stage, batch, length, recompute, GiB; fp32 shards, bf16 compute.
    ("gpt2-medium", 4, 3, 4, 1024, "none", 8.8777),
    ("Qwen/Qwen2.5-0.5B", 2, 3, 2, 2048, "none", 15.2809),
]


@pytest.mark.parametrize(
    ("model", "ranks", "stage", "batch", "length", "recompute", "gib"), SHARDED_PEAKS
)
def test_sharded_peak_is_what_fully_shard_allocates(  # noqa: PLR0913 - one row of the table
    make_job: JobMaker,
    model: str,
    ranks: int,
    stage: int,
    batch: int,
    length: int,
    recompute: str,
    gib: float,
) -> None:
    recipe = {"sequence_length": length, "global_batch_size": batch * ranks}
    job = make_job(model, gpus=ranks, recipe=recipe)
    strategy = Strategy(
        data_parallel_shard_size=ranks,
        zero_stage=stage,
        micro_batch_size=batch,
        recompute=recompute,
    )
    assert estimate_memory(job, strategy).peak_bytes / GIB == pytest.approx(gib, rel=0.01)


def test_small_batches_peak_at_the_optimizer_step_and_large_ones_at_the_loss(
    make_job: JobMaker,
) -> None:
    job = make_job(gpus=1, recipe={"precision": "fp32", "sequence_length": 256})
    small, large = (estimate_memory(job, one_gpu(size)) for size in (1, 64))
    assert PHASES[int(small.phase)] == "optimizer step"
    assert PHASES[int(large.phase)] == "backward of the loss"


def test_recompute_never_keeps_more(make_job: JobMaker) -> None:
    job = make_job(gpus=1)
    for size in (1, 8, 64):
        kept = terms(estimate_memory(job, one_gpu(size)))["activations"]
        assert terms(estimate_memory(job, one_gpu(size, "full")))["activations"] < kept


def test_a_bare_encoder_has_no_logits(make_job: JobMaker) -> None:
    job = make_job("Snowflake/snowflake-arctic-embed-m", gpus=1)
    assert terms(estimate_memory(job, one_gpu(8)))["logits_and_loss"] == 0


def test_a_column_equals_its_rows(make_job: JobMaker) -> None:
    job = make_job()
    table = estimate_memory(job, strategies(job))
    rows = strategies(job)
    for row in range(0, num_rows(rows), 7):
        alone = estimate_memory(job, rows.at(row))
        assert float(alone.peak_bytes) == table.at(row).peak_bytes
        assert [t.how for t in alone.terms] == [t.how for t in table.at(row).terms]


def test_every_term_shows_its_arithmetic_and_source(make_job: JobMaker) -> None:
    job = make_job(recipe={"global_batch_size": 8})
    for term in estimate_memory(job, strategies(job).at(0)).terms:
        assert any(character.isdigit() for character in term.how)
        assert term.source
        assert np.isfinite(term.amount)
