import json
import re
from pathlib import Path
from typing import Any

import pytest

from planner.core.errors import InvalidInputError
from planner.sweep.grid import LARGEST_FILE_BYTES, read_sweep


def requests_of(folder: Path, text: str, name: str = "sweep.yaml") -> list[dict[str, Any]]:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    sweep = read_sweep(file)
    found = list(sweep)
    assert len(found) == len(sweep)
    return found


def test_a_grid_is_every_combination_and_a_list_comes_after_it(tmp_path: Path) -> None:
    found = requests_of(
        tmp_path,
        """
        base: {recipe: {global_batch_size: 64}, nodes: 1}
        grid:
          model: [gpt2, bert-base-uncased]
          gpu: a100
          gpus: [1, 8]
        list:
          - {model: gpt2, cluster: {instance: p4d.24xlarge}, batch: 512}
        """,
    )
    assert [(each["model"], each["cluster"].get("gpus_per_node")) for each in found] == [
        ("gpt2", 1),
        ("gpt2", 8),
        ("bert-base-uncased", 1),
        ("bert-base-uncased", 8),
        ("gpt2", None),
    ]
    assert found[0] == {
        "model": "gpt2",
        "cluster": {"nodes": 1, "gpu": "a100", "gpus_per_node": 1},
        "recipe": {"global_batch_size": 64},
    }
    assert found[4]["cluster"] == {"nodes": 1, "instance": "p4d.24xlarge"}
    assert found[4]["recipe"] == {"global_batch_size": 512}


def test_json_needs_no_yaml(tmp_path: Path) -> None:
    text = json.dumps({"list": [{"model": "gpt2"}]})
    assert requests_of(tmp_path, text, "sweep.json") == [{"model": "gpt2"}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "neither a grid nor a list"),
        ("[1]", "neither a grid nor a list"),
        ("{}", "neither a grid nor a list"),
        ("grid: {}", "has 0 requests"),
        ("gird: {model: gpt2}\nlist: []", "unknown section 'gird'"),
        ("grid: [gpt2]", "grid is not a table"),
        ("grid: {model: []}", "grid.model has no values"),
        ("list: gpt2", "list is not a list"),
        ("list: [gpt2]", "list[0] is not a table"),
        ("grid: {model: gpt2, nodes: [1, many]}", "cluster.nodes"),
        ("grid: {model: gpt2, gpuz: [a100]}", "unknown field 'gpuz'"),
        ("grid: {model: gpt2, gpu: a, cluster.gpu: b}", "says cluster.gpu twice"),
        ("grid: {model: gpt2, model.x: b}", "a value and a table"),
        ("grid: {cluster.nodes: 1, model: gpt2, cluster: 3}", "cluster"),
        ("grid: {model: gpt2, recipe.framework_version: 2024-08-01}", "JSON serializable"),
        ("grid: {1: gpt2}", "a key that is not a text"),
        ("grid: {model: .nan}", "cannot be read"),
        ("a: &a [1]\ngrid: {model: *a}", "aliases are not read"),
        ("grid: {model: gpt2, gpu: [a100], model: bert}", "'model' is given twice"),
        ("grid: {model: !!python/object/apply:os.getcwd []}", "cannot be read"),
        ("grid: {model: [gpt2", "cannot be read"),
        ("[" * 100_000, "nested too deeply"),
        (f"#{'x' * LARGEST_FILE_BYTES}", "larger than 1 MiB"),
        (
            f"grid: {{model: gpt2, gpus: [{'1, ' * 400}], nodes: [{'1, ' * 400}], batch: [{'1, ' * 400}]}}",
            "64,000,000",
        ),
    ],
)
def test_what_is_no_sweep_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        requests_of(tmp_path, text)
    assert said in f"{refused.value.message} {refused.value.field}"


def test_a_value_that_no_request_can_have_is_of_its_file_and_no_flag(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as refused:
        requests_of(tmp_path, "grid: {model: gpt2, gpus: [x]}")
    assert re.search(
        r"^/.*: cluster.gpus_per_node: must be a whole number, not 'x'$", refused.value.message
    )
    assert refused.value.field == "SWEEP"


def test_json_that_names_something_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "twice.json").write_text(
        '{"grid": {"model": "gpt2", "gpu": "t4", "model": "bert"}}'
    )
    with pytest.raises(InvalidInputError, match="'model' twice in one object"):
        read_sweep(tmp_path / "twice.json")


def test_many_names_are_looked_through_once(tmp_path: Path) -> None:
    names = ", ".join(f"n{number}: 1" for number in range(5_000))
    with pytest.raises(InvalidInputError, match="unknown field"):
        requests_of(tmp_path, f"grid: {{model: gpt2, {names}}}")


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot read"):
        read_sweep(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match="not a text file"):
        read_sweep(tmp_path / "binary.yaml")
