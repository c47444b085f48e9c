"""What training is meant, at a terminal; and where nothing fits, what there is."""

import json

import pytest
from test_cli import process, run

from planner.calibrate.logs.per_step import tokens_of_a_sample
from planner.core.errors import InvalidInputError


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("--job", "pretrain"), "pretrain"),
        (("--init", "random"), "pretrain"),
        (("--init", "pretrained"), "finetune"),
        (("--init", "random", "--job", "pretrain"), "pretrain"),
        ((), "finetune"),
    ],
)
def test_a_job_is_said_in_its_own_words_or_in_those_of_the_scripts(
    words: tuple[str, ...], meant: str
) -> None:
    result = run("suggest", "gpt2", "--gpu", "a100", "--json", *words)
    assert json.loads(result.stdout)["job"]["recipe"]["job"] == meant


def test_the_two_do_not_contradict_each_other() -> None:
    result = run("suggest", "gpt2", "--init", "random", "--job", "finetune")
    assert isinstance(result.exception, InvalidInputError)
    assert result.exception.message == "--init random is --job pretrain, and --job is finetune"


def test_what_was_assumed_names_the_flag_and_its_values() -> None:
    said = " ".join(run("suggest", "gpt2", "--gpu", "a100", "-v").stdout.split())
    assert "(--job pretrain or finetune)" in said


def test_where_nothing_fits_a_table_stands_in_place_of_a_hint() -> None:
    done = process("suggest", "meta-llama/Llama-2-70b-hf", "--gpus", "2", "--gpu", "4090")
    assert (done.returncode, done.stdout) == (3, "")
    first, title, heads, asked, *rows = done.stderr.splitlines()
    assert first.startswith("error: nothing fits: ")
    assert title.startswith("What was tried (")
    assert heads.split()[:3] == ["change", "fits", "memory"]
    assert asked.split()[:5] == ["fine-tuning", "of", "all", "weights", "no"]
    assert {"--method qlora", "--nodes 64"} <= {row.partition("  yes")[0].strip() for row in rows}
    assert "hint:" not in done.stderr
    assert max(map(len, done.stderr.splitlines()[1:])) <= 100


def test_fewer_pairs_than_gpus_leave_the_others_free() -> None:
    words = ["suggest", "gpt2", "--gpus", "8", "--gpu", "h100", "--job", "dpo"]
    ended = run(*words, "--global-batch-size", "4")
    assert (ended.exit_code, "of 8 GPUs" in ended.stdout) == (0, True)


def test_a_pair_has_the_tokens_of_both_answers() -> None:
    pair = {"sequence_length": 128, "job": "dpo"}
    assert tokens_of_a_sample(pair) == 2 * tokens_of_a_sample({"sequence_length": 128}) == 256
    assert tokens_of_a_sample({"job": "dpo"}) == 0
