"""Terms of a page lead to their explanations."""

import re

import pytest

from planner.explain import glossary
from web.jobs import draw_plan
from web.pages import TERMS, explained


def test_every_word_has_an_entry() -> None:
    names = {entry.name for entry in glossary.entries()}
    assert set(TERMS.values()) <= names


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("20 % MFU", '20 % <a class="term" href="/terms/mfu">MFU</a>'),
        (
            "ZeRO-3 beats ZeRO, and zero-3 again",
            '<a class="term" href="/terms/zero-3">ZeRO-3</a> beats <a class="term" href="/terms/zero">ZeRO</a>, and zero-3 again',
        ),
        ("tp+zero-2 of <b>", 'tp+<a class="term" href="/terms/zero-2">zero-2</a> of &lt;b&gt;'),
        ("non-zero, zeroed", "non-zero, zeroed"),
    ],
)
def test_a_term_leads_to_its_explanation_where_it_stands_first(text: str, shown: str) -> None:
    assert str(explained(text)) == shown


def test_a_plan_leads_to_the_terms_that_it_uses() -> None:
    taken = {"framework": "torch", "compile": "false", "loss": "standard", "job": "pretrain"}
    query = (("model", "gpt2"), ("gpus_per_node", "4"), *taken.items())
    page = draw_plan(query, "http://testserver/")
    led = set(re.findall(r'class="term" href="/terms/([^"]+)"', page))
    assert led >= {"micro-batch", "gradient-accumulation", "recompute", "mfu", "ddp", "zero-2"}
    # A link stands in no other.
    assert not re.search(r"<a [^>]*>[^<]*<a ", page)
