"""BERT that looks for answers, beside what nvidia-smi saw of it, and beside the model that asks for masked words."""

from typing import Any

from planner.catalog import records
from planner.core.units import GIB
from planner.memory.ledger import Memory, estimate_memory
from planner.request.schema import parse_request, resolve
from planner.request.strategy import requested_layout

PUBLISHED = records.read("measurements", "bert_squad")


def memory_of(row: dict[str, Any], architecture: str) -> Memory:
    known = records.model(row["model"])
    assert known is not None
    batch, gpus = row["micro_batch_size"], PUBLISHED["gpus"]
    request = parse_request(
        {
            "model": {**known.config, "architectures": [architecture]},
            "cluster": {"gpu": row["gpu"], "gpus_per_node": gpus},
            "recipe": {
                "sequence_length": PUBLISHED["sequence_length"],
                "global_batch_size": batch * gpus,
                "precision": row["precision"],
                "framework": row["framework"],
                "attention": "eager",
            },
            "strategy": {
                "data_parallel_replicate_size": gpus,
                "zero_stage": 0,
                "micro_batch_size": batch,
                "recompute": "none",
            },
        }
    )
    job = resolve(request, allow_paths=False, of_a_run=True).job
    return estimate_memory(job, requested_layout(request.strategy, job))


def _shortfall(row: list[Any]) -> float:
    run = dict(zip(PUBLISHED["columns"], row, strict=True))
    own = float(memory_of(run, PUBLISHED["architecture"]).reserved_bytes)
    return 1 - own / GIB / float(run["used_gib"])


def test_published_readings_are_missed_by_what_their_script_holds_alike() -> None:
    """The masked-language model that this head was once read as would have taken 42 GiB of the first's 31."""
    found = [_shortfall(row) for row in PUBLISHED["rows"]]
    assert max(found) < 0.15
    assert max(found) - min(found) < 0.025


def test_two_logits_a_token_take_far_less_than_a_vocabulary() -> None:
    run = dict(zip(PUBLISHED["columns"], PUBLISHED["rows"][0], strict=True))
    answers, words = (
        float(memory_of(run, f"BertFor{head}").reserved_bytes) / GIB
        for head in ("QuestionAnswering", "MaskedLM")
    )
    assert words - answers > 10
