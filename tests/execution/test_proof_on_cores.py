"""The short form of `make proof`: one model over one slow link, measured, planned, trained and compared."""

import json
import socket
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import pytest
from needed import need, need_root
from proof import measured
from proof.__main__ import lines_of, machine_file, main
from proof.jobs import RUNS
from proof.judge import predicted
from proof.measured import steps_of
from proof.wires import WIRES, move_to

SLOW = next(wire for wire in WIRES if wire.rate == "20mbit")
LAYOUTS = ("ddp", "local-4", "pp-4")
MODEL = "long-llama"
RATE_BYTES_PER_SECOND = 20e6 / 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for program in ("ip", "tc"):
        need(program, get="apt-get install iproute2")
    need_root()
    folder = tmp_path_factory.mktemp("proof")
    words = ["--folder", str(folder), "--wires", SLOW.name, "--subjects", MODEL, "--budget", "60"]
    main([*words, "--layouts", *LAYOUTS, "--repetitions", "1", "--without-anchors"])
    return folder


def test_the_machine_file_has_the_cable(folder: Path) -> None:
    machine = json.loads(machine_file(folder, SLOW).read_text())
    assert (machine["cluster"]["gpus_per_node"], machine["cluster"]["nodes"]) == (1, 2)
    curves = {curve["operation"]: curve for curve in machine["collectives"]}
    largest = curves["all_reduce"]["points"][-1]
    rate = largest["bytes"] / largest["seconds"]
    assert RATE_BYTES_PER_SECOND / 3 < rate < 1.2 * RATE_BYTES_PER_SECOND
    assert curves["reduce_scatter"]["slowdown"] == 1.0


def test_over_a_slow_link_local_sgd_leaves_ddp_behind_as_planned(folder: Path) -> None:
    steps = steps_of(folder / "done.jsonl")
    machine = json.loads(machine_file(folder, SLOW).read_text())
    runs = {run.layout: run for run in RUNS if run.name in steps}
    assert set(runs) == set(LAYOUTS)
    took = {layout: median(steps[run.name]) for layout, run in runs.items()}
    planned = {layout: predicted(run, machine) for layout, run in runs.items()}
    assert took["local-4"] < took["ddp"]
    assert planned["local-4"] < planned["ddp"]
    for layout in LAYOUTS:
        assert 0.3 < planned[layout] / took[layout] < 3, layout


def test_what_is_done_is_not_done_again(folder: Path) -> None:
    before = list(lines_of(folder / "done.jsonl"))
    main(["--folder", str(folder), "--wires", SLOW.name, "--subjects", MODEL,
          "--layouts", *LAYOUTS, "--repetitions", "1"])  # fmt: skip
    assert list(lines_of(folder / "done.jsonl")) == before


def test_what_was_measured_is_written_as_the_page_reads_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    monkeypatch.setattr(measured, "TABLE", tmp_path / "cpu_proof.toml")
    measured.write_measured(folder)
    assert len(tomllib.loads((tmp_path / "cpu_proof.toml").read_text())["rows"]) == len(LAYOUTS)
    judged = list(measured.judged())
    assert {each.run.layout for each in judged} == set(LAYOUTS)
    assert all(each.measured > 0 and each.planned > 0 for each in judged)


def test_a_loopback_of_a_wires_rate_has_it_each_way() -> None:
    need_root()
    for program in ("ip", "tc"):
        need(program, get="apt-get install iproute2")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        one, both = process.submit(_bytes_per_second).result(60)
    assert 0.5 < one / RATE_BYTES_PER_SECOND < 1.1
    assert 0.5 < both / RATE_BYTES_PER_SECOND < 1.1


def _bytes_per_second() -> tuple[float, float]:
    """Return the rate of a slow wire's loopback where one end of a connection sends, and of each where both do."""
    move_to(SLOW)
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        ends = client, server.accept()[0]
    return _sent([ends]), _sent([ends, ends[::-1]])


def _sent(ways: Sequence[tuple[socket.socket, socket.socket]], size: int = 1_000_000) -> float:
    begun = time.monotonic()
    with ThreadPoolExecutor(2 * len(ways)) as threads:
        for sender, receiver in ways:
            threads.submit(sender.sendall, bytes(size))
            threads.submit(receiver.recv, size, socket.MSG_WAITALL)
    return size / (time.monotonic() - begun)
