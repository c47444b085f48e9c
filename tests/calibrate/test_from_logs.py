import json
import os
from pathlib import Path
from typing import Any

import log_samples
import pytest
from click.testing import CliRunner, Result

from planner.calibrate.from_logs import figures_of_logs
from planner.calibrate.logs.gpus import Likeness, likeness
from planner.calibrate.logs.reading import Reading, read_log_bytes
from planner.cli import cli
from planner.cli.layouts import read_layout
from planner.core.errors import InvalidInputError
from planner.machine.reading import read_machine

LAYOUT = "gpt2 --gpus 2 --gpu l40s --seq-len 512 --global-batch-size 16 --micro-batch-size 8"


def read(text: str, file: str = "run.log") -> Reading:
    return read_log_bytes(file, text.encode())


def test_one_step_is_no_steps() -> None:
    last = log_samples.script_records().splitlines()[-1]
    said = figures_of_logs([(read(last), read_layout(LAYOUT.replace("l40s", "a100")))]).lines
    assert "run.log: the planner's script, median of 1 step, 0 of the warm-up" in said[0]


def test_logs_of_runs_and_of_exchanges_go_together() -> None:
    layout = read_layout(LAYOUT.replace("l40s", "a100"))
    logs = [read(log_samples.script_records()), read(log_samples.nccl_tests(), "nccl.out")]
    figures = figures_of_logs((log, layout) for log in logs)
    assert [run.step_seconds for run in figures.runs] == [0.5]
    assert [curve.operation for curve in figures.collectives] == ["all_reduce"]
    assert figures.software == {"nccl": "2.27.3+cuda12.9"}
    assert figures.gpu == "a100-sxm-80gb"
    said = "\n".join(figures.lines)
    assert "run.log: the planner's script, median of 11 steps, 1 of the warm-up left out" in said
    assert "  500 ms a step, 7.40 GiB allocated" in said
    assert "  all_reduce among 8 ranks on 2 nodes: 5 sizes" in said


def test_a_log_says_what_its_layout_leaves_out() -> None:
    layout = read_layout("meta-llama/Llama-2-7b-hf", gpu="NVIDIA H100 80GB HBM3")
    (run,) = figures_of_logs([(read(log_samples.torchtitan()), layout)]).runs
    assert run.request["cluster"] == {"gpu": "NVIDIA H100 80GB HBM3", "gpus_per_node": 8}
    assert run.request["strategy"]["tensor_parallel_size"] == 2


def test_logs_of_several_gpus_are_no_machine() -> None:
    layout = read_layout(LAYOUT)
    logs = [read(log_samples.script()), read(log_samples.nccl_tests(), "nccl.out")]
    with pytest.raises(InvalidInputError, match=r"run\.log of l40s, nccl\.out of a100-sxm-80gb"):
        figures_of_logs((log, layout) for log in logs)


def test_logs_that_say_nothing_are_refused_with_what_they_say() -> None:
    log = read("step 1/3: loss nan tokens/s (plan 3)")
    with pytest.raises(InvalidInputError, match="1 lines could not be used, first: step 1/3"):
        figures_of_logs([(log, None)])


def test_a_layout_is_a_plan_a_request_or_flags(tmp_path: Path) -> None:
    flags = read_layout(LAYOUT)
    assert flags is not None
    assert flags["cluster"] == {"gpu": "l40s", "gpus_per_node": 2}
    assert flags["strategy"] == {"micro_batch_size": 8}
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"id": 3, **flags}))
    assert read_layout(str(file)) == flags
    strategy, cluster = {"micro_batch_size": 8}, {"gpu": "l40s", "gpus_per_node": 2}
    job: dict[str, Any] = {"model": {"name": "gpt2"}, "cluster": cluster, "recipe": {}}
    plan = {"job": job, "chosen": {"strategy": strategy}}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert read_layout(str(tmp_path)) == {
        "model": "gpt2",
        "cluster": cluster,
        "recipe": {},
        "strategy": strategy,
    }
    assert read_layout(None) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpt2 --gpus 4", "does not say --gpu NAME"),
        ("--gpus 4", "does not say its MODEL"),
        ("gpt2 --nonsense", "No such option"),
        ("'", "No closing quotation"),
        ("none.json", "cannot read none.json"),
    ],
)
def test_a_layout_that_says_too_little_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        read_layout(text)


def test_flags_that_end_in_a_file_are_flags(tmp_path: Path) -> None:
    os.chdir(tmp_path)
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 256}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "my config.json").write_text(json.dumps(config))
    for name in ("config.json", "'my config.json'"):
        layout = read_layout(f"--gpus 2 --gpu l40s {name}")
        assert layout is not None
        assert layout["model"] == name.strip("'")
    for alone in ("config.json", "my config.json"):
        layout = read_layout(alone, gpu="NVIDIA L40S")
        assert layout is not None
        assert (layout["model"], layout["cluster"]["gpu"]) == (alone, "NVIDIA L40S")


def test_a_layout_answers_no_question_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("--help", "gpt2 --gpus 2 --help"):
        with pytest.raises(InvalidInputError, match=r"--layout takes a plan\.json") as refused:
            read_layout(text)
        assert "planner estimate --help" in refused.value.hint
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("value", [{}, {"chosen": {}}, {"chosen": {"strategy": 3}, "job": []}])
def test_a_file_that_is_no_layout_is_refused(value: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "layout.json"
    file.write_text(json.dumps(value))
    with pytest.raises(InvalidInputError):
        read_layout(str(file))


def calibrate(folder: Path, *arguments: str) -> Result:
    (folder / "run.log").write_text(log_samples.script())
    (folder / "slow.log").write_text(log_samples.script_records(0.7))
    (folder / "nccl.out").write_text(log_samples.nccl_tests().replace("A100-SXM4-80GB", "L40S"))
    os.chdir(folder)
    return CliRunner().invoke(cli, ["calibrate", *arguments, "-o", "machine.json"])


def test_a_machine_is_made_of_logs_and_added_to(tmp_path: Path) -> None:
    result = calibrate(tmp_path, "--from", "run.log", "nccl.out", "--layout", LAYOUT)
    assert result.exit_code == 0, result.output
    assert "1 of the warm-up left out" in result.stderr
    machine = read_machine("machine.json")
    assert machine.cluster.gpu == "l40s"
    assert machine.anchors.compute is None  # outside its range, and alone
    assert [curve.ranks for curve in machine.collectives] == [8]
    assert "run.log took " in result.stdout
    assert "median error: curves " in result.stdout
    more = ("--from", "slow.log", "--layout", LAYOUT, "--machine", "machine.json")
    result = calibrate(tmp_path, *more)
    assert result.exit_code == 0, result.output
    again = read_machine("machine.json")
    assert [run.step_seconds for run in again.runs][1] == pytest.approx(0.7)
    assert again.collectives == machine.collectives
    assert again.anchors.compute is not None
    assert again.anchors.compute.factor > 1
    assert " longer than its curves say, give or take " in result.stdout


def test_a_machine_of_exchanges_alone_needs_no_layout(tmp_path: Path) -> None:
    assert calibrate(tmp_path, "--from", "nccl.out").exit_code == 0
    machine = read_machine("machine.json")
    assert (machine.cluster.gpu, machine.cluster.gpus_per_node, machine.cluster.nodes) == (
        "l40s",
        4,
        2,
    )


def test_each_run_may_have_a_layout_of_its_own(tmp_path: Path) -> None:
    other = LAYOUT.replace("--micro-batch-size 8", "--micro-batch-size 4")
    logs = ("--from", "run.log", "nccl.out", "slow.log")
    result = calibrate(tmp_path, *logs, "--layout", LAYOUT, "--layout", other)
    assert result.exit_code == 0, result.output
    runs = read_machine("machine.json").runs
    assert [run.request["strategy"]["micro_batch_size"] for run in runs] == [8, 4]
    three = calibrate(tmp_path, *logs, *("--layout", LAYOUT) * 3, "--force")
    assert isinstance(three.exception, InvalidInputError)
    assert "3 layouts for 2 logs of runs" in three.exception.message


def test_logs_without_their_flag_are_asked_for(tmp_path: Path) -> None:
    result = calibrate(tmp_path, "run.log")
    assert result.exit_code == 2
    assert "--from" in result.output


def test_nothing_is_written_over_that_nobody_named(tmp_path: Path) -> None:
    first = ("--from", "run.log", "--layout", LAYOUT)
    assert calibrate(tmp_path, *first).exit_code == 0
    written = Path("machine.json").read_bytes()
    again = calibrate(tmp_path, *first)
    assert isinstance(again.exception, InvalidInputError)
    assert "--machine machine.json adds to it" in again.exception.hint
    assert Path("machine.json").read_bytes() == written
    for force in ((), ("--force",)):
        over = CliRunner().invoke(cli, ["calibrate", *first, "-o", "run.log", *force])
        assert isinstance(over.exception, InvalidInputError)
        assert "run.log is read here" in over.exception.message
    assert calibrate(tmp_path, *first, "--force").exit_code == 0


def titan(gpu: str) -> str:
    return log_samples.torchtitan().replace("NVIDIA H100 80GB HBM3", gpu)


@pytest.mark.parametrize(
    ("logged", "named", "relation"),
    [
        ("NVIDIA H100", "h100-sxm-96gb", Likeness.SAME),
        ("NVIDIA H100 80GB HBM3", "h100", Likeness.SAME),
        ("NVIDIA H100 PCIe", "h100", Likeness.VARIANT),
        ("NVIDIA H100", "a100", Likeness.OTHER),
        ("NVIDIA GeForce RTX 4090", "rtx-3090", Likeness.OTHER),
        ("NVIDIA A100-SXM4-80GB", "a10", Likeness.OTHER),
        ("cpu", "l40s", Likeness.OTHER),
        ("Fancy 9000", "l40s", Likeness.UNKNOWN),
    ],
)
def test_a_gpu_is_known_by_its_kind(logged: str, named: str, relation: Likeness) -> None:
    assert likeness(logged, named) == relation


def test_a_log_of_one_gpu_says_nothing_of_another(tmp_path: Path) -> None:
    (tmp_path / "titan.log").write_text(titan("NVIDIA H100"))
    layout = "meta-llama/Llama-2-7b-hf --gpus 8 --strategy zero-3 --tp 2 --gpu "
    first = ("--from", "titan.log", "--layout")
    other = calibrate(tmp_path, *first, layout + "a100")
    assert isinstance(other.exception, InvalidInputError)
    assert "is of NVIDIA H100, and the layout of a100" in other.exception.message
    made = calibrate(tmp_path, *first, layout + "h100-sxm-96gb")
    assert made.exit_code == 0, made.output
    assert "and the layout of" not in made.stderr
    more = calibrate(tmp_path, *first, layout + "h100-sxm-96gb", "--machine", "machine.json")
    assert more.exit_code == 0, more.output


def test_exchanges_of_one_gpu_do_not_go_with_a_layout_of_another(tmp_path: Path) -> None:
    (tmp_path / "loop.log").write_text(log_samples.bars())
    mixed = calibrate(
        tmp_path, "--from", "loop.log", "nccl.out", "--layout", LAYOUT.replace("l40s", "h100")
    )
    assert isinstance(mixed.exception, InvalidInputError)
    assert mixed.exception.message.startswith("the logs are of l40s, and the layout of h100")


def test_a_log_that_is_given_twice_is_one_run(tmp_path: Path) -> None:
    made = calibrate(tmp_path, "--from", "run.log", "slow.log", "run.log", "--layout", LAYOUT)
    assert made.exit_code == 0, made.output
    assert "1 of 3 runs given are there already" in made.stderr
    seconds = [run.step_seconds for run in read_machine("machine.json").runs]
    assert len(seconds) == 2
    assert seconds[1] == pytest.approx(0.7)
