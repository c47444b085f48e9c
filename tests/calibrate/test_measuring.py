"""What is measured of a model, and the measuring program on this host's cores."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from planner.calibrate.measure.clock import Budget
from planner.calibrate.measure.program import slowest_of
from planner.calibrate.measure.start import command_of_each_node, measure_here, program_words
from planner.calibrate.measure.tasks import (
    AttentionShape,
    Matmul,
    Tasks,
    joined,
    read_tasks,
    tasks_of,
    write_tasks,
)
from planner.cli import measuring
from planner.core.errors import InvalidInputError, UnsupportedError
from planner.machine.document import GemmCurve, GemmPoint, Hardware, Machine
from planner.machine.reading import read_machine
from planner.request.model import load_model

SMALL = Tasks(
    matmuls=tuple(
        Matmul(dtype="fp32", pass_name=name, m=64, n=32, k=16)
        for name in ("forward", "input gradient", "weight gradient")
    ),
    attention=(
        AttentionShape(
            dtype="fp32", is_causal=True, head_size=16, batch=1, heads=2, sequence_length=32
        ),
    ),
    optimizer_parameters=2**12,
    message_bytes=(1024, 4096),
)


def test_the_matmuls_are_those_of_the_layers() -> None:
    model, _ = load_model("gpt2", allow_paths=False)
    tasks = tasks_of(model, sequence_length=1024, dtypes=("bf16",), tokens=(4096,))
    found = {(each.pass_name, each.m, each.n, each.k) for each in tasks.matmuls}
    assert ("forward", 4096, 3072, 768) in found
    assert ("input gradient", 4096, 768, 3072) in found
    assert ("weight gradient", 3072, 768, 4096) in found
    assert ("forward", 4096, 50257, 768) in found
    assert [each.flops for each in tasks.matmuls] == sorted(each.flops for each in tasks.matmuls)
    (attention,) = tasks.attention
    assert (attention.batch, attention.heads, attention.head_size) == (4, 12, 64)


def test_tensor_parallelism_divides_them() -> None:
    model, _ = load_model("gpt2", allow_paths=False)
    tasks = tasks_of(
        model, sequence_length=1024, dtypes=("bf16",), tensor_sizes=(4,), tokens=(4096,)
    )
    found = {(each.m, each.n, each.k) for each in tasks.matmuls}
    assert (4096, 3072 // 4, 768) in found
    assert (4096, 768, 3072 // 4) in found
    assert tasks.attention[0].heads == 3


def test_tasks_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_tasks(SMALL, tmp_path / "tasks.json")
    assert read_tasks(tmp_path / "tasks.json") == SMALL


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"matmuls": [{"m": 1}], "attention": []}'])
def test_what_holds_no_tasks_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tasks.json").write_text(text)
    with pytest.raises(InvalidInputError, match="holds no tasks"):
        read_tasks(tmp_path / "tasks.json")


def test_two_cores_are_two_accelerators() -> None:
    machine = measure_here(SMALL, processes=2, budget_seconds=120, is_cpu=True, name="two cores")
    assert (machine.cluster.gpus_per_node, machine.cluster.nodes) == (2, 1)
    assert [len(curve.points) for curve in machine.gemm] == [3]
    assert machine.attention[0].points[0].backward_seconds > 0
    assert {curve.operation for curve in machine.collectives} >= {"all_reduce", "all_gather"}
    assert all(curve.ranks == 2 for curve in machine.collectives)
    slowdowns = {curve.operation: curve.slowdown for curve in machine.collectives}
    assert slowdowns["all_gather"] == slowdowns["reduce_scatter"] == 1.0
    assert slowdowns["all_to_all"] is None
    for operation in ("all_reduce", "send_receive"):
        lost = slowdowns[operation]
        assert lost is not None
        assert 0 <= lost <= 1
    assert machine.memory_bytes_per_second
    assert machine.launch_seconds
    assert machine.host_to_device_bytes_per_second is None


def test_parts_of_a_node_exchange_too() -> None:
    tasks = replace(SMALL, matmuls=SMALL.matmuls[:1], attention=(), message_bytes=(1024,))
    machine = measure_here(tasks, processes=4, budget_seconds=120, is_cpu=True)
    assert {curve.ranks for curve in machine.collectives} == {2, 4}
    assert {curve.nodes for curve in machine.collectives} == {1}


def timed(seconds: float, *rows: int) -> Machine:
    points = tuple(GemmPoint(m=m, n=8, k=8, seconds=seconds) for m in rows)
    cluster = Hardware(gpu="h100", gpus_per_node=8)
    gemm = (GemmCurve(dtype="bf16", points=points),)
    return Machine(created="2026-01-01", cluster=cluster, gemm=gemm)


def test_a_machine_is_as_slow_as_its_slowest_rank(capsys: pytest.CaptureFixture[str]) -> None:
    ranks = [timed(0.5, 1, 2), timed(0.6, 1, 2), timed(0.4, 1, 2, 3)]
    assert slowest_of(ranks, Budget(60, is_shown=True)) is ranks[1]
    assert "rank 1's, the slowest: its matmuls take 50 % longer" in capsys.readouterr().err
    untimed = [replace(each, gemm=()) for each in ranks]
    assert slowest_of(untimed, Budget(60, is_shown=True)) is untimed[0]


def test_a_bar_says_how_much_of_the_time_is_gone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    budget = Budget(100, is_shown=True)
    monkeypatch.setattr(time, "monotonic", lambda: now + 25)
    budget.show("matmuls")
    assert capsys.readouterr().err == "[#####...............] matmuls; at most 75 s to go\n"


def test_without_time_nothing_but_what_is_short_is_measured(tmp_path: Path) -> None:
    write_tasks(SMALL, tmp_path / "tasks.json")
    words = ["--tasks", str(tmp_path / "tasks.json"), "-o", str(tmp_path / "machine.json")]
    done = subprocess.run(
        [sys.executable, "-m", "planner.calibrate.measure", *words, "--budget", "0", "--cpu"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    machine = read_machine(tmp_path / "machine.json")
    assert not machine.gemm
    assert "left out: 3 fp32 matmuls" in done.stderr
    assert "wrote" not in done.stderr
    assert machine.cluster.memory_bytes
    assert json.loads((tmp_path / "machine.json").read_text())["cluster"]["gpu"] == "cpu"


def test_without_a_gpu_the_way_out_is_named() -> None:
    with pytest.raises(UnsupportedError, match="exit status 1"):
        measure_here(SMALL, processes=1, budget_seconds=1, is_cpu=False)


def test_every_node_types_the_same_line() -> None:
    program = program_words(Path("tasks.json"), Path("machine.json"), 180, "lab")
    line = command_of_each_node(program, nodes=2, processes=8, is_cpu=False)
    assert line.startswith("torchrun --nnodes=2 --nproc_per_node=8 ")
    assert "-m planner.calibrate.measure --tasks tasks.json" in line
    assert line.endswith("--name lab")
    assert command_of_each_node(program, nodes=2, processes=1, is_cpu=True).endswith("lab --cpu")


def test_several_models_are_measured_as_one_list() -> None:
    models = [
        load_model(name, allow_paths=False)[0] for name in ("gpt2", "openai-community/gpt2-medium")
    ]
    each = [tasks_of(model, sequence_length=1024, dtypes=("bf16",)) for model in models]
    both = joined([each[0], each[1], each[0]])
    assert set(both.matmuls) == {*each[0].matmuls, *each[1].matmuls}
    assert [shape.flops for shape in both.matmuls] == sorted(shape.flops for shape in both.matmuls)
    assert both.message_bytes == each[1].message_bytes


@pytest.mark.parametrize(
    ("more", "flags", "dtype"),
    [
        ("--precision fp8", {}, "bf16"),
        ("", {"cpu": True}, "fp32"),
        ("", {"dtypes": ("fp16",)}, "fp16"),
    ],
)
def test_of_a_layout_its_own_shapes_are_measured(
    more: str, flags: dict[str, object], dtype: str
) -> None:
    layout = "meta-llama/Llama-3.1-8B --gpus 8 --gpu h100 --seq-len 4096 --framework megatron"
    layout += f" --global-batch-size 12 --tp 2 --micro-batch-size 3 {more}"
    given = {"layout": (layout,), "cpu": False, "dtypes": (), **flags}
    (subject,) = measuring.subjects(given)
    assert subject.sequence_length == 4096
    found = {(each.dtype, each.pass_name, each.m, each.n, each.k) for each in subject.tasks.matmuls}
    assert (dtype, "forward", 3 * 4096, 14336 // 2, 4096) in found
    assert {each[2] for each in found if each[1] == "forward"} == {3 * 4096}
    (attention,) = subject.tasks.attention
    assert (attention.batch, attention.heads, attention.sequence_length) == (3, 16, 4096)


def test_messages_go_up_to_the_gradients_of_a_small_model() -> None:
    model, _ = load_model("gpt2", allow_paths=False)
    tasks = tasks_of(model, sequence_length=1024, dtypes=("bf16",))
    assert tasks.message_bytes[-1] == 2**28
    assert list(tasks.message_bytes) == sorted(tasks.message_bytes)
    small = tasks_of(replace(model, parts=model.parts[:1]), sequence_length=64, dtypes=("fp32",))
    assert small.message_bytes[-1] == 4 * replace(model, parts=model.parts[:1]).parameters
