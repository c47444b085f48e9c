"""A field of a request is described once: its type in a model, its words in `data/request/fields.toml`."""

import subprocess
import sys

from planner.catalog.fields import fieldsets, words
from planner.request.assumed import ASSUMED_SEQUENCE_LENGTH
from planner.request.cluster import ASSUMED_GPU
from planner.request.schema import fields

ADDED = '''
from typing import Any

from pydantic import Field

from planner.catalog.records import read
from planner.request import sections

FIELD = "recipe.dropout_share"


class RecipeRequest(sections.RecipeRequest):
    """The training run, and one thing more."""

    dropout_share: float | None = Field(default=None, ge=0, lt=1)


sections.RecipeRequest = RecipeRequest
table = read("request", "fields")
said = {"flag": "--dropout X", "help": "Share that is dropped.", "label": "Dropout", "empty": "no"}
table[FIELD] = said
next(each for each in table["fieldset"] if each["legend"] == "Training")["inputs"].append("dropout_share")

from click.testing import CliRunner

from api.fields import by_field
from api.description import description
from planner.cli import cli
from planner.cli.options import build_request
from planner.cli.plans import suggest
from planner.report.command import request_words
from web.controls import fieldsets
from web.form import command_line, read_question
from web.wording import in_labels

help_ = CliRunner().invoke(cli, ["suggest", "--help-all"]).stdout
assert "--dropout FLOAT RANGE" in help_ and "Share that is dropped.  [0<=x<1]" in help_, help_

context = suggest.make_context("suggest", ["gpt2", "--gpu", "a100", "--dropout", "0.1"])
request = build_request(context.params.pop("model"), context.params)
assert request.recipe.dropout_share == 0.1
words = request_words(request.model_dump(mode="json", exclude_unset=True))
assert words and ["--dropout", "0.1"] == words[words.index("--dropout") :][:2], words

schemas: Any = description()["components"]["schemas"]
described = schemas["RecipeRequest"]["properties"]["dropout_share"]
assert described["description"] == "Share that is dropped. Left out: no.", described
assert described["anyOf"][0] == {"type": "number", "minimum": 0, "exclusiveMaximum": 1}, described

control = next(c for g in fieldsets(are_folded=False) for c in g.controls if c.name == "dropout_share")
assert (control.label, control.placeholder, control.kind) == ("Dropout", "no", "text")
question = read_question({"model": "gpt2", "dropout_share": "0.1"}.items())
assert question.request.recipe.dropout_share == 0.1
assert "--dropout 0.1" in command_line(question, "a100", 1)

assert by_field("such as --dropout 0.1") == f"such as {FIELD} 0.1"
assert in_labels("such as --dropout 0.1") == "such as Dropout: 0.1"
'''


def test_one_more_field_is_at_every_door() -> None:
    """As CONTRIBUTING says: a line of a model and its words; in a process of its own, which keeps the field."""
    done = subprocess.run(
        [sys.executable, "-c", ADDED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_words_are_of_fields_and_every_field_has_some() -> None:
    described = {path for path, said in words().items() if said.description or said.flag}
    assert described == fields().keys()


def test_every_label_stands_in_one_fieldset() -> None:
    listed = [name for each in fieldsets() for name in each.inputs]
    assert sorted(listed) == sorted(each.name for each in fields().values() if each.words.label)


def test_what_an_empty_input_means_is_what_is_assumed() -> None:
    assert words()["cluster.gpu"].empty == ASSUMED_GPU
    assert f"{ASSUMED_SEQUENCE_LENGTH:,}" in words()["recipe.sequence_length"].empty


def test_a_name_that_means_all_stands_for_the_others() -> None:
    targets = fields()["files.targets"]
    assert targets.typed("all, torchrun") == targets.typed("all") == {"files.targets": "all"}
    assert targets.typed("torchrun, trainer,") == {"files.targets": ["torchrun", "trainer"]}
