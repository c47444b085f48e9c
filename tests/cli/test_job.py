"""What training is meant, at a terminal; and where nothing fits, what there is."""

import json

import pytest
from test_cli import process, run

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
