"""Pages speak of their labels where a terminal speaks of flags."""

import re
from html import unescape

import pytest

from planner.core.errors import InvalidRequestError, Problem
from planner.report.flags import flags
from planner.request.schema import parse_request
from web.wording import in_labels, in_links, with_detail, without_field


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("--framework torch", "Framework: torch"),
        ("add --tokens N", "add \u201cTokens of the run\u201d"),
        ("but --gpus is 4", "but \u201cGPUs per node\u201d is 4"),
        (
            "such as --micro-batch-size 1, --tp 8 or --ep 8",
            "such as Micro-batch size: 1, Tensor parallel: 8 or Expert parallel: 8",
        ),
        ("--no-optimizer-in-backward", "no \u201cOptimizer steps in backward\u201d"),
        ("leave --instance out", "leave \u201cCloud instance\u201d out"),
        ("--offload optimizer would fit", "Offload: optimizer would fit"),
        ("--why says what it lacks", "\u201cWhy not\u201d says what it lacks"),
        ("--verbose says what it lacks", "the terminal's --verbose says what it lacks"),
        ("a -- b --", "a -- b --"),
    ],
)
def test_a_flag_is_said_by_its_label(said: str, shown: str) -> None:
    assert in_labels(said) == shown


def test_a_command_that_lists_names_is_a_page_here() -> None:
    said = in_links("`planner gpus` lists all of <them>; such as --gpu t4")
    assert said == '<a href="/gpus">/gpus</a> lists all of &lt;them&gt;; such as GPU: t4'
    assert in_links("run `planner <b>`") == "run <code>planner &lt;b&gt;</code>"


def test_every_flag_of_a_field_has_a_label() -> None:
    without = {"--packed/--padded"}  # which the share of padding says, too
    for flag in {*flags().values()} - without:
        assert "--" not in in_labels(flag), flag


def test_what_is_wrong_in_a_file_keeps_its_place_there() -> None:
    inside = Problem(field="machine.cluster.gpu", message="machine.cluster.gpu: is empty", hint="")
    assert without_field(inside) == "cluster.gpu: is empty"
    plain = Problem(field="cluster.nodes", message="cluster.nodes: is 0", hint="")
    assert without_field(plain) == "is 0"


def test_what_was_sent_is_told_in_the_words_of_json() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_request({"model": "gpt2", "cluster": {"nodes": None, "gpus_per_node": True}})
    told = " ".join(problem.message for problem in refused.value.problems)
    assert "not null" in told or "not true" in told
    assert "None" not in told
    assert "True" not in told


@pytest.mark.parametrize(
    ("cell", "narrow"),
    [
        ("18 % faster, 5.67 GiB less", "18 % faster"),
        ("44 % slower, 12.6 GiB less; no files", "44 % slower; no files"),
        ("tp 4 pp 8 (interleaved-1f1b x10)", "tp 4 pp 8"),
        ("dp 2x2", "dp 2x2"),
        ("<b>, &", "&lt;b&gt;"),
    ],
)
def test_a_narrow_screen_leaves_out_the_second_figure(cell: str, narrow: str) -> None:
    shown = str(with_detail(cell))
    assert re.sub(r'<span class="only-wide">.*?</span>', "", shown) == narrow
    assert unescape(re.sub(r"</?span[^>]*>", "", shown)) == cell
