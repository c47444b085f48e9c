"""Every fact of the public texts that the planner began with, by its number: `facts/published_facts.toml`."""

import tomllib
from pathlib import Path

import pytest
from published_checks import assert_check

FILE = tomllib.loads(
    (Path(__file__).parent / "facts/published_facts.toml").read_text(encoding="utf-8")
)
FACTS = {fact["number"]: fact for fact in FILE["fact"]}
CLASSIFIER = (
    "gpt2 --task sequence-classification --gpu v100-sxm2-16gb --precision fp32 --attention eager"
    " --accumulation-steps 1"
)
BERT = (
    "bert-large-uncased --gpus 4 --gpu titan-rtx --no-peer-to-peer --precision fp16 --seq-len 384"
    " --attention eager --task token-classification --micro-batch-size 11 --optimizer adamw --gradient-reduce-dtype bf16"
)
JOBS = {
    "{titans}": "gpt2 --gpus 2 --gpu titan-rtx --precision fp32 --seq-len 1024 --micro-batch-size 4 --accumulation-steps 1",
    "{classifier}": CLASSIFIER,
    "{forum}": f"{CLASSIFIER} --seq-len 16 --micro-batch-size 128 --samples 8551 --epochs 2",
    "{bert16}": f"{BERT} --accumulation-steps 16",
    "{bert}": f"{BERT} --accumulation-steps 1",
}
"""What several facts are about. How long the forum's sentences are is assumed; see docs/accuracy/runs.md."""


def test_there_are_78_of_them_and_each_has_a_check_or_a_reason() -> None:
    assert list(FACTS) == list(range(1, 79))
    for fact in FACTS.values():
        assert fact["source"] in FILE["sources"]
        assert fact["line"]
        assert fact["says"]
        assert fact.get("checks") or fact["waits"], fact["number"]


@pytest.mark.parametrize("number", [n for n, fact in FACTS.items() if "checks" in fact])
def test_the_planner_holds_to(number: int) -> None:
    for check in FACTS[number]["checks"]:
        assert_check(check, JOBS)
