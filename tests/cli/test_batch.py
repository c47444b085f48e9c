import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from planner.cli import cli

TWO_GPUS = {"cluster": {"gpu": "a100", "gpus_per_node": 2}}


def ask(command: str, lines: list[object], *arguments: str) -> list[dict[str, Any]]:
    """Return the answer to every line; text goes in as it is."""
    stdin = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    result = CliRunner().invoke(cli, (command, "--batch", "-", *arguments), input=stdin)
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert (result.exit_code == 0) == any(each["ok"] for each in answers), result.output
    return answers


def test_every_line_of_a_batch_gets_a_plan_or_its_error() -> None:
    lines: list[object] = [
        {"id": "first", "model": "gpt2", **TWO_GPUS},
        {"id": 2, "model": "no/such"},
        "",
        {"id": 3, "model": "gpt2", "why": {"tensor_parallel_size": 2}, **TWO_GPUS},
        {"id": "large", "model": "meta-llama/Llama-2-70b-hf", "cluster": {"gpu": "t4"}},
    ]
    plan, unknown, why, too_large = ask("suggest", lines)
    assert (plan["id"], plan["ok"]) == ("first", True)
    assert plan["chosen"]["strategy"]["data_parallel_replicate_size"] == 2
    assert "targets" not in plan
    assert (unknown["id"], unknown["ok"], unknown["error"]["field"]) == (2, False, "model")
    assert why["why"]["wish"] == {"tensor_parallel_size": 2}
    assert too_large["error"]["type"] == "NothingFitsError"


def test_a_line_is_answered_as_the_command_answers_its_flags() -> None:
    (in_batch,) = ask("suggest", [{"model": "gpt2", **TWO_GPUS}])
    flags = ("suggest", "gpt2", "--gpu", "a100", "--gpus", "2", "--json")
    alone = json.loads(CliRunner().invoke(cli, flags).stdout)
    assert in_batch.pop("line") == 1
    for answer in (in_batch, alone):
        del answer["search"]["seconds"]
    assert in_batch == alone


@pytest.mark.parametrize("command", ["suggest", "estimate"])
@pytest.mark.parametrize(
    ("line", "request_id", "said"),
    [
        ("{broken", None, "line 1 is not JSON: "),
        ("[" * 100_000, None, "line 1 is not JSON: nested too deeply"),
        ("[1]", None, "not [1]"),
        ("3", None, "not 3"),
        ("null", None, "not null"),
        ('"gpt2"', None, "not 'gpt2'"),
        ("{}", None, "model: is missing"),
        ({"id": "a", "model": "gpt2", "Gpus": 4}, "a", "unknown field 'Gpus'"),
        ({"id": "a", "model": "gpt2", "str": 4}, "a", "unknown field 'str'"),
        ({"id": "a", "MODEL": "gpt2"}, "a", "unknown field 'MODEL'"),
        ({"id": "a", "model": "gpt2", "cluster": {"Nodes": 2}}, "a", "'cluster.Nodes'"),
        ({"id": "a", "model": "gpt2", "recipe": {"lora": {"Rank": 2}}}, "a", "'recipe.lora.Rank'"),
        ('{"id": "a", "model": {"a": ' + "[" * 500 + "]" * 500 + "}}", "a", "nested deeper"),
        ({"id": [1], "model": "gpt2"}, None, "id: "),
        ({"id": 1.5, "model": "gpt2"}, None, "id: "),
        ({"id": True, "model": "gpt2"}, None, "id: "),
        ('{"id": NaN, "model": "gpt2"}', None, "line 1 is not JSON: NaN"),
        ('{"model": "gpt2", "model": "t5"}', None, "'model' twice in one object"),
        ({"id": "\ud800", "model": "no/such"}, "\ud800", "no/such"),
        ({"id": 10**30, "model": "no/such"}, 10**30, "no/such"),
    ],
)
def test_a_bad_line_is_answered_in_its_own_line(
    command: str, line: object, request_id: object, said: str
) -> None:
    bad, good = ask(command, [line, {"id": "good", "model": "gpt2"}])
    assert (bad["id"], bad["ok"]) == (request_id, False)
    assert said in bad["error"]["message"]
    assert (good["id"], good["ok"]) == ("good", True)


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("Model", "did you mean model?"),
        ("Precision", "did you mean recipe.precision?"),
        ("gpus_per_node", "did you mean cluster.gpus_per_node?"),
    ],
)
def test_an_unknown_field_names_the_nearest_known_one(field: str, hint: str) -> None:
    (answer,) = ask("estimate", [{"model": "gpt2", field: 4}])
    assert answer["error"]["field"] == field
    assert answer["error"]["hint"] == hint


def test_bytes_that_are_no_text_are_a_bad_line(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    line = b'{"id": "good", "model": "gpt2"}\n'
    file.write_bytes(b"\xef\xbb\xbf" + line + b"\xff\n" + line)
    result = CliRunner().invoke(cli, ("suggest", "--batch", str(file)))
    assert [json.loads(line)["ok"] for line in result.stdout.splitlines()] == [True, False, True]


def test_out_gives_every_plan_a_folder_of_its_id(tmp_path: Path) -> None:
    lines: list[object] = [
        {"id": "row-1", "model": "gpt2", **TWO_GPUS, "files": {"targets": ["torchrun"]}},
        {"id": 2, "model": "microsoft/resnet-50"},
        {"id": "nt", "model": "gpt2", "recipe": {"framework": "nanotron"}},
        {
            "id": "pp",
            "model": "gpt2",
            **TWO_GPUS,
            "strategy": {"pipeline_parallel_size": 2},
        },
    ]
    plain, pictures, nanotron, pipeline = ask("suggest", lines, "--out", str(tmp_path))
    assert plain["targets"] == ["torchrun"]
    assert plain["unwritten"].keys() == {"axolotl"}
    assert (tmp_path / "row-1/torchrun/train.py").is_file()
    written = json.loads((tmp_path / "row-1/plan.json").read_text())
    assert written["chosen"]["strategy"] == plain["chosen"]["strategy"]
    assert (pictures["ok"], pictures["targets"]) == (True, [])
    assert "not of models of type resnet" in pictures["unwritten"]["torchrun"]
    assert "models of type llama and mistral, not gpt2" in nanotron["unwritten"]["nanotron"]
    assert pipeline["targets"] == ["torchrun"]
    assert pipeline["unwritten"].keys() >= {"trainer"}
    assert {path.name for path in tmp_path.iterdir()} == {"row-1", "pp"}


def test_a_filled_folder_is_kept_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/README.md").write_text("mine")
    line = {"id": "a", "model": "gpt2", **TWO_GPUS}
    (kept,) = ask("suggest", [line], "--out", str(tmp_path))
    assert (kept["ok"], kept["targets"]) == (True, [])
    assert "is not empty" in kept["unwritten"]["torchrun"]
    assert (tmp_path / "a/README.md").read_text() == "mine"
    (others,) = ask("suggest", [line], "--out", str(tmp_path), "--force")
    assert "README.md" in others["unwritten"]["torchrun"]
    assert (tmp_path / "a/README.md").read_text() == "mine"
    (tmp_path / "a/README.md").unlink()
    assert ask("suggest", [line], "--out", str(tmp_path))[0]["unwritten"].keys() == {"axolotl"}
    assert (
        "is not empty" in ask("suggest", [line], "--out", str(tmp_path))[0]["unwritten"]["trainer"]
    )
    (forced,) = ask("suggest", [line], "--out", str(tmp_path), "--force")
    assert forced["unwritten"].keys() == {"axolotl"}


@pytest.mark.parametrize(
    "request_id",
    ["../up", "a/b", "", ".", "..", ".hidden", "a\nb", "a\0b", "\ud800", "a" * 101, None],
)
def test_an_id_that_is_no_plain_file_name_is_refused(
    request_id: str | None, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    (answer,) = ask("suggest", [{"id": request_id, "model": "gpt2"}], "--out", str(folder))
    assert (answer["id"], answer["ok"]) == (request_id, False)
    assert answer["error"]["field"] == "id"
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_second_line_of_the_same_id_is_refused(tmp_path: Path) -> None:
    lines: list[object] = [{"id": name, "model": "gpt2"} for name in (1, "1", "other")]
    answers = ask("suggest", lines, "--out", str(tmp_path), "--force")
    assert [answer["ok"] for answer in answers] == [True, False, True]
    assert "earlier line" in answers[1]["error"]["message"]
    assert all(answer["ok"] for answer in ask("suggest", lines))
