"""machine.json is read strictly, and written as it is read."""

import errno
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from planner.core.errors import InvalidInputError
from planner.machine.document import VERSION, Hardware, Machine
from planner.machine.reading import LARGEST_FILE, parse_machine, read_machine
from planner.machine.writing import machine_json, write_machine

WHOLE: dict[str, Any] = {
    "kind": "planner-machine",
    "version": 1,
    "created": "2026-11-22",
    "cluster": {"gpu": "h100-sxm-80gb", "gpus_per_node": 8, "nodes": 2},
    "name": "rack 7",
    "planner": "0.1.0",
    "software": {"torch": "2.13.0", "nccl": "2.27"},
    "gemm": [{"dtype": "bf16", "points": [{"m": 4096, "n": 4096, "k": 4096, "seconds": 2e-4}]}],
    "attention": [
        {
            "dtype": "bf16",
            "causal": True,
            "head_size": 64,
            "points": [
                {
                    "batch": 1,
                    "heads": 16,
                    "sequence_length": 4096,
                    "forward_seconds": 1e-3,
                    "backward_seconds": 3e-3,
                }
            ],
        }
    ],
    "memory_bytes_per_second": 2.9e12,
    "launch_seconds": 4e-6,
    "host_to_device_bytes_per_second": 5e10,
    "optimizer_bytes_per_second": 2.5e12,
    "collectives": [
        {
            "operation": "all_reduce",
            "ranks": 16,
            "nodes": 2,
            "points": [{"bytes": 1e9, "seconds": 0.01}],
        }
    ],
    "runs": [{"request": {"model": "gpt2"}, "step_seconds": 1.5, "source": "run 3"}],
    "anchors": {
        "compute": {"factor": 1.1, "spread": 0.03, "runs": 1},
        "memory": {"more_bytes": -1e8, "spread_bytes": 1e7, "runs": 1},
    },
}


def _with(path: str, value: object) -> dict[str, Any]:
    """Return the whole machine with one value changed; `...` takes it out."""
    machine = deepcopy(WHOLE)
    *parents, last = path.split(".")
    part: Any = machine
    for name in parents:
        part = part[int(name)] if isinstance(part, list) else part[name]
    if value is ...:
        del part[last]
    else:
        part[last] = value
    return machine


def test_what_is_written_is_what_was_read(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    machine = parse_machine(WHOLE)
    write_machine(machine, file)
    assert read_machine(file) == machine
    assert machine_json(machine) == WHOLE


def test_only_the_date_and_the_machine_must_be_there() -> None:
    least = {key: WHOLE[key] for key in ("kind", "version", "created", "cluster")}
    machine = parse_machine(least)
    assert machine.runs == ()
    assert machine.memory_bytes_per_second is None
    assert machine_json(machine) == least


@pytest.mark.parametrize(
    ("path", "value", "field", "says"),
    [
        ("kind", "something", "machine.kind", "no machine file"),
        ("version", VERSION + 1, "machine.version", "version 2"),
        ("version", True, "machine.version", "version True"),
        ("created", "yesterday", "machine.created", "a date"),
        ("created", ..., "machine.created", "missing"),
        ("cluster", [], "machine.cluster", "an object"),
        ("cluster.gpu", 3, "machine.cluster.gpu", "a text"),
        ("cluster.gpu", "h100\x1b[2J", "machine.cluster.gpu", "one line"),
        ("cluster.nodes", 0, "machine.cluster.nodes", "not between 1"),
        ("cluster.nodes", 1.5, "machine.cluster.nodes", "a whole number"),
        ("cluster.wheels", 4, "machine.cluster", "unknown key"),
        ("gemm.0.points.0.seconds", 0, "machine.gemm[0].points[0].seconds", "not between"),
        ("gemm.0.points.0.m", True, "machine.gemm[0].points[0].m", "a whole number"),
        ("launch_seconds", float("nan"), "machine.launch_seconds", "a number"),
        ("launch_seconds", 10**400, "machine.launch_seconds", "a number"),
        ("collectives.0.ranks", 1, "machine.collectives[0].ranks", "not between 2"),
        ("software", {"torch": 2}, "machine.software", "a text"),
        ("runs", {}, "machine.runs", "a list"),
        ("runs", [{"request": {}}] * 1001, "machine.runs", "1,001 entries"),
        ("runs.0.request", "gpt2", "machine.runs[0].request", "an estimate request"),
        ("anchors.compute.factor", 1e9, "machine.anchors.compute.factor", "not between"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(
    path: str, value: object, field: str, says: str
) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        parse_machine(_with(path, value))
    assert refusal.value.field == field
    assert says in refusal.value.message
    assert refusal.value.message.isprintable()


@pytest.mark.parametrize("value", [None, 3, "text", [], {}])
def test_what_is_no_machine_is_said_to_be_none(value: object) -> None:
    with pytest.raises(InvalidInputError, match="no machine file"):
        parse_machine(value)


def test_a_request_nested_deeply_is_refused() -> None:
    request: dict[str, Any] = {}
    for _ in range(100):
        request = {"model": request}
    with pytest.raises(InvalidInputError, match="an estimate request"):
        parse_machine(_with("runs.0.request", request))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe", "not a text file"),
        (b"[" * 100_000, "not JSON"),
        (b" " * (LARGEST_FILE + 1), "larger than 4 MiB"),
        (b"[]", "no machine file"),
    ],
)
def test_a_hostile_file_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "machine.json"
    file.write_bytes(content)
    with pytest.raises(InvalidInputError, match=says):
        read_machine(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot read"):
        read_machine(tmp_path / "none.json")
    with pytest.raises(InvalidInputError, match="cannot read"):
        read_machine("a\0b")


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot write") as refusal:
        write_machine(parse_machine(json.loads(json.dumps(WHOLE))), tmp_path)
    assert refusal.value.field == "--output"


def test_a_file_that_is_refused_is_named_with_the_key(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(WHOLE | {"memory_bytes_per_second": -1}))
    with pytest.raises(InvalidInputError) as refusal:
        read_machine(file)
    assert refusal.value.message.startswith(f"{file}: memory_bytes_per_second: -1 is not between")
    assert refusal.value.field == "machine.memory_bytes_per_second"


def test_a_disk_that_is_full_leaves_the_file_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, link = tmp_path / "machine.json", tmp_path / "link.json"
    link.symlink_to(file)
    write_machine(
        Machine(created="2026-01-02", cluster=Hardware(gpu="l40s", gpus_per_node=2)), file
    )
    before = file.read_text()

    def full(path: Path, text: str, **_more: str) -> None:
        path.write_bytes(text[:9].encode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(InvalidInputError, match="No space left"):
        write_machine(read_machine(file), link)
    assert file.read_text() == before
    assert {each.name for each in tmp_path.iterdir()} == {"machine.json", "link.json"}
    monkeypatch.undo()
    write_machine(
        Machine(created="2026-01-03", cluster=Hardware(gpu="l40s", gpus_per_node=2)), link
    )
    assert link.is_symlink()
    assert read_machine(file).created == "2026-01-03"


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EACCES])
def test_a_file_that_cannot_be_replaced_is_written_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(_new: Path, _path: Path) -> None:
        raise OSError(number, "as of a file that is mounted by itself")

    file = tmp_path / "machine.json"
    file.touch()
    machine = Machine(created="2026-01-02", cluster=Hardware(gpu="l40s", gpus_per_node=2))
    monkeypatch.setattr(Path, "replace", refused)
    write_machine(machine, file)
    assert read_machine(file).created == "2026-01-02"
    assert [*tmp_path.iterdir()] == [file]
    with pytest.raises(InvalidInputError, match="mounted"):
        write_machine(machine, tmp_path / "new.json")
