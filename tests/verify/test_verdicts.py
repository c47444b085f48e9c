import json
import re
import shlex
from pathlib import Path
from typing import Any

import log_samples
import pytest
from click.testing import CliRunner, Result

from planner import answers
from planner.calibrate.logs.plans import request_of_plan
from planner.calibrate.logs.reading import read_log_bytes
from planner.cli import cli
from planner.core.errors import InvalidInputError
from planner.machine.reading import read_machine
from planner.request.schema import parse_request
from planner.verify import machine_file
from planner.verify.planned import read_planned

GPT2: dict[str, Any] = {
    "model": "gpt2",
    "cluster": {"gpu": "l40s", "gpus_per_node": 2},
    "recipe": {
        "sequence_length": 512,
        "global_batch_size": 16,
        "framework": "torch",
        "compile": False,
    },
}


def plan_of(**more: Any) -> dict[str, Any]:
    resolved, plan = answers.suggest(parse_request({**GPT2, **more}), allow_paths=True)
    read: dict[str, Any] = json.loads(json.dumps(answers.answer_plan(resolved, plan, None)))
    return read


@pytest.fixture(scope="module")
def plan() -> dict[str, Any]:
    return plan_of()


def verify(folder: Path, log: str, plan: dict[str, Any], *flags: str) -> Result:
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "run.log").write_text(log)
    return CliRunner().invoke(cli, ["verify", str(folder / "run.log"), *flags])


def like(plan: dict[str, Any], slower: float = 1.0, more_memory: float = 1.0) -> str:
    chosen = plan["chosen"]
    peak = chosen["memory"]["peak_bytes"] / 2**30 * more_memory
    reserved = {"reserved_gib": 1.05 * peak}
    return log_samples.script_records(chosen["time"]["step_seconds"] * slower, peak, **reserved)


def test_a_run_as_planned_passes(tmp_path: Path, plan: dict[str, Any]) -> None:
    result = verify(tmp_path, like(plan), plan)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("PASS: as fast as planned, its memory in the planned range\n")
    assert "median of 11 steps, 1 of the warm-up left out" in result.output


@pytest.mark.parametrize(("slower", "passes"), [(1.05, True), (1.06, False), (0.5, True)])
def test_it_passes_from_95_percent_of_the_planned_speed_on(
    slower: float, tmp_path: Path, plan: dict[str, Any], *, passes: bool
) -> None:
    answer = json.loads(verify(tmp_path, like(plan, slower), plan, "--json").output)
    assert answer["ok"] is passes
    assert [check["ok"] for check in answer["checks"]] == [passes, passes, True, True]


def test_a_slow_run_fails_with_what_the_plan_is_least_sure_of(
    tmp_path: Path, plan: dict[str, Any]
) -> None:
    result = verify(tmp_path, like(plan, 1.5), plan)
    assert result.exit_code == 4
    assert result.output.startswith("FAIL: a step is 50 % slower than planned\n")
    assert re.search(r"\d+ % of the plan's doubt is in ", result.output)
    assert "--profile trace" in result.output


def test_a_trace_says_which_part_takes_longer(tmp_path: Path, plan: dict[str, Any]) -> None:
    (tmp_path / "trace.json").write_text(log_samples.trace())
    flags = ("--trace", str(tmp_path / "trace.json"), "--json")
    answer = json.loads(verify(tmp_path, like(plan, 2), plan, *flags).output)
    assert [reason["name"] for reason in answer["reasons"]] == ["idle", "exchanges"]
    traced = {check["name"]: check["measured"] for check in answer["checks"][4:]}
    assert traced == {
        "computing": pytest.approx(0.06),
        "exchanges": pytest.approx(0.015),
        "idle": pytest.approx(0.025),
    }
    assert answer["reasons"][0]["text"].startswith("idle: 25.0 ms of a traced step, planned 0 s")


@pytest.mark.parametrize(
    ("memory", "said", "attempt"),
    [
        (1.2, "more memory allocated", "lower the micro-batch"),
        (0.8, "with less memory than planned", "a larger micro-batch"),
    ],
)
def test_more_memory_than_planned_fails_and_less_is_said(
    memory: float, said: str, attempt: str, tmp_path: Path, plan: dict[str, Any]
) -> None:
    result = verify(tmp_path, like(plan, 1, memory), plan)
    assert result.exit_code == (4 if memory > 1 else 0)
    assert said in result.output
    assert attempt in result.output


def test_a_run_that_ran_out_of_memory_fails(tmp_path: Path, plan: dict[str, Any]) -> None:
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    for text in (log, f"{log_samples.script()}\n{log}"):
        result = verify(tmp_path, text, plan)
        assert result.exit_code == 4
        assert result.output.startswith("FAIL: the run ran out of memory\n")


def test_what_ran_out_is_told_with_its_card_and_what_is_left_to_try(
    tmp_path: Path, plan: dict[str, Any]
) -> None:
    message = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"
        " capacity of 23.65 GiB of which 1.00 GiB is free. Of the allocated memory 20.00 GiB is"
        " allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
    )
    assert plan["chosen"]["strategy"]["micro_batch_size"] > 1
    said = " ".join(verify(tmp_path, message, plan).output.split())
    assert "the message is from one of 23.7 GiB" in said
    assert "lower the micro-batch, or plan with --recompute full" in said
    assert "logits and loss" in said
    assert "logits_and_loss" not in said
    small = {**plan["chosen"]["strategy"], "micro_batch_size": 1}
    for recompute, attempt in (("none", "--recompute full"), ("full", "--offload optimizer")):
        strategy = {"strategy": {**small, "recompute": recompute}}
        changed = {**plan, "chosen": {**plan["chosen"], **strategy}}
        said = " ".join(verify(tmp_path, message, changed).output.split())
        assert f"Try plan with {attempt}" in said


@pytest.mark.parametrize("before", ["loss 4.1234", '"loss": 4.1'])
def test_a_run_whose_loss_is_no_number_fails(
    before: str, tmp_path: Path, plan: dict[str, Any]
) -> None:
    log = like(plan) if '"' in before else log_samples.script()
    after = before.replace("4.1234", "nan").replace("4.1", "NaN")
    lost = [line.replace(before, after) for line in log.splitlines()]
    first, *rest = log.splitlines()
    result = verify(tmp_path, "\n".join([first, *lost[1:]]), plan)
    assert result.exit_code == 4
    assert "the loss is no number, first in" in " ".join(result.output.split())
    answer = json.loads(verify(tmp_path, "\n".join(lost), plan, "--json").output)
    assert (answer["checks"][-1]["name"], answer["checks"][-1]["ok"]) == ("loss", False)
    once = json.loads(verify(tmp_path, "\n".join([lost[0], *rest]), plan, "--json").output)
    assert "loss" not in {check["name"] for check in once["checks"]}


def test_every_kind_of_log_tells_a_loss_that_is_no_number() -> None:
    kinds = {
        log_samples.megatron(): "lm loss: 7.4E+00",
        log_samples.nanotron(): "lm_loss: 10.8",
        log_samples.maxtext(): "loss: 10.888",
        log_samples.torchtitan(): "loss:  8.16610",
        log_samples.trainer(): "'loss': '4.21'",
    }
    for log, loss in kinds.items():
        assert loss in log
        assert not read_log_bytes("log", log.encode()).lost
        name = loss.rpartition(":")[0]
        assert read_log_bytes("log", log.replace(loss, f"{name}: nan").encode()).lost


def test_a_run_on_cpus_says_nothing_of_the_plans_gpus(tmp_path: Path, plan: dict[str, Any]) -> None:
    machine = tmp_path / "machine.json"
    result = verify(tmp_path, log_samples.script(2, "CPU"), plan, "--append", str(machine))
    assert result.exit_code == 0
    assert "\nnote: " in result.output
    assert "RAN: the plan's figures could not be judged" in result.output
    assert not machine.exists()


def test_memory_of_rank_0_is_the_first_stages(tmp_path: Path) -> None:
    divided = plan_of(strategy={"family": "pp"})
    stages = divided["chosen"]["memory"]["stages"]
    peak = stages[0]["peak_bytes"] / 2**30
    log = log_samples.script_records(divided["chosen"]["time"]["step_seconds"], peak)
    answer = json.loads(verify(tmp_path, log, divided, "--json").output)
    assert answer["ok"] is True
    assert answer["checks"][2]["note"] == "of rank 0"
    assert answer["checks"][2]["planned"] == stages[0]["peak_bytes"]


def test_a_run_is_added_to_a_machine(tmp_path: Path, plan: dict[str, Any]) -> None:
    file = tmp_path / "machine.json"
    for runs, slower in ((1, 1.0), (2, 1.02), (2, 1.0)):
        result = verify(tmp_path, like(plan, slower), plan, "--append", str(file))
        assert result.exit_code == 0, result.output
        machine = read_machine(file)
        assert len(machine.runs) == runs
    run = machine.runs[0]
    assert run.step_seconds == pytest.approx(plan["chosen"]["time"]["step_seconds"])
    answer = answers.answer_estimate(parse_request(run.request), allow_paths=False)
    assert answer["time"]["step_seconds"] == pytest.approx(run.step_seconds)
    other = plan_of(cluster={"gpu": "a100", "gpus_per_node": 2})
    with pytest.raises(InvalidInputError, match="is of l40s"):
        raise_of(verify(tmp_path, like(other), other, "--append", str(file)))


def test_a_verdict_is_printed_whatever_becomes_of_the_machine_file(
    tmp_path: Path, plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise InvalidInputError("cannot write m.json: No space left on device")

    monkeypatch.setattr(machine_file, "write_machine", full)
    result = verify(tmp_path, like(plan), plan, "--append", str(tmp_path / "m.json"))
    assert "PASS" in result.output
    assert "No space left" in str(result.exception)


@pytest.mark.parametrize(
    ("name", "said"), [("nowhere/m.json", "there is no folder"), ("m.json", "run of CPUs")]
)
def test_a_machine_file_that_cannot_begin_is_refused_before_anything_runs(
    tmp_path: Path, name: str, said: str
) -> None:
    of_cpus = plan_of()
    of_cpus["job"]["cluster"]["gpu"] = "cpu"
    result = verify(tmp_path, like(of_cpus), of_cpus, "--append", str(tmp_path / name))
    assert said in str(result.exception)
    assert "PASS" not in result.output
    assert "RAN" not in result.output


def raise_of(result: Result) -> None:
    assert result.exception is not None
    raise result.exception


@pytest.mark.parametrize(
    "more",
    [
        {"recipe": {**GPT2["recipe"], "method": "lora"}},
        {"recipe": {**GPT2["recipe"], "method": "qlora", "lora": {"rank": 8}}},
        {"recipe": {**GPT2["recipe"], "packed": False, "padding_share": 0.25}},
        {"cluster": {**GPT2["cluster"], "nodes": 2, "inter_node": "ethernet-10g"}},
        {"cluster": {**GPT2["cluster"], "intra_node": {"bus_gb_per_s": 7, "latency_us": 9}}},
        {"cluster": {"instance": "p4d.24xlarge", "nodes": 2}, "strategy": {"family": "zero-3"}},
        {"strategy": {"family": "tp"}},
    ],
)
def test_a_plans_request_is_estimated_as_the_plan(more: dict[str, Any]) -> None:
    plan = plan_of(**more)
    answer = answers.answer_estimate(parse_request(request_of_plan(plan)), allow_paths=False)
    chosen = plan["chosen"]
    assert answer["time"]["step_seconds"] == pytest.approx(chosen["time"]["step_seconds"], rel=1e-6)
    assert answer["memory"]["peak_bytes"] == pytest.approx(chosen["memory"]["peak_bytes"], rel=1e-6)


def test_steps_that_differ_are_said_to(tmp_path: Path, plan: dict[str, Any]) -> None:
    seconds = plan["chosen"]["time"]["step_seconds"]
    lines = [log_samples.script_records(seconds * factor).splitlines() for factor in (1, 1.6)]
    mixed = [pair[step % 2] for step, pair in enumerate(zip(*lines, strict=True))]
    output = verify(tmp_path, "\n".join(mixed), plan).output
    assert "was the machine doing something else?" in output


def test_a_run_on_other_gpus_is_said_to_be(tmp_path: Path, plan: dict[str, Any]) -> None:
    output = verify(tmp_path, log_samples.script(2, "NVIDIA A100-SXM4-80GB"), plan).output
    assert "the log is of NVIDIA A100-SXM4-80GB, and the layout of l40s" in output
    assert "RAN: the plan's figures could not be judged" in output
    assert "and the layout of" not in verify(tmp_path, log_samples.script(), plan).output


def test_a_markdown_table_has_every_check(tmp_path: Path, plan: dict[str, Any]) -> None:
    output = verify(tmp_path, like(plan), plan, "--format", "markdown").output
    assert output.startswith("### PASS")
    assert output.count("| pass |") == 4


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (log_samples.script(4), "says 4 ranks, and the layout 1 x 2 GPUs"),
        (
            log_samples.script_records(tokens_per_step=512),
            "says 512 tokens a step, and the layout 8,192",
        ),
        ("hello", "no log that is known"),
        (log_samples.script().replace("67,892", "258,188"), "another plan: its own says 258,188"),
        (log_samples.nccl_tests(), "of links, not of a run"),
        ("step 1/3: loss nan tokens/s (plan 67,892)", "has no step that can be compared"),
        (log_samples.trainer().replace("'train_runtime'", "'x'"), "its end .* is not there"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    log: str, said: str, tmp_path: Path, plan: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        raise_of(verify(tmp_path, log, plan))


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"chosen": None},
        {"chosen": {"time": {"step_seconds": 0}}},
        {"chosen": {"memory": {"reserved_bytes": 0}}},
        {"chosen": {"memory": {"stages": []}}},
        {"chosen": {"memory": {"peak_bytes": 10**400}}},
        {"chosen": {"time": {"low_seconds": float("nan")}}},
        {"job": {"recipe": {"sequence_length": "512"}}},
        {"job": {"cluster": {"world_size": -2}}},
    ],
)
def test_a_broken_plan_is_refused(
    broken: dict[str, Any], tmp_path: Path, plan: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInputError, match="holds no plan"):
        raise_of(verify(tmp_path, like(plan), _broken(plan, broken) if broken else {}))


def _broken(value: dict[str, Any], by: dict[str, Any]) -> dict[str, Any]:
    return value | {
        name: _broken(value[name], part) if isinstance(part, dict) else part
        for name, part in by.items()
    }


def test_a_folder_without_what_can_be_run_is_refused(tmp_path: Path, plan: dict[str, Any]) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    runner = CliRunner()
    with pytest.raises(InvalidInputError, match="no target"):
        raise_of(runner.invoke(cli, ["verify", str(tmp_path)]))
    (tmp_path / "torchrun").mkdir()
    (tmp_path / "torchrun" / "launch.sh").write_text("echo broken here; exit 3\n")
    with pytest.raises(InvalidInputError, match="exit status 3: broken here"):
        raise_of(runner.invoke(cli, ["verify", str(tmp_path)]))
    (tmp_path / "torchrun" / "launch.sh").write_text("echo CUDA out of memory; exit 1\n")
    assert runner.invoke(cli, ["verify", str(tmp_path)]).exit_code == 4
    with pytest.raises(InvalidInputError, match="no target trainer"):
        raise_of(runner.invoke(cli, ["verify", str(tmp_path), "--target", "trainer"]))
    with pytest.raises(InvalidInputError, match=r"cannot read .*No such file"):
        raise_of(runner.invoke(cli, ["verify", str(tmp_path / "torchrun" / "none.log")]))
    far = tmp_path / "torchrun" / "a" / "b" / "c" / "run.log"
    far.parent.mkdir(parents=True)
    far.write_text(log_samples.script())
    with pytest.raises(InvalidInputError, match=r"no plan\.json"):
        raise_of(runner.invoke(cli, ["verify", str(far)]))


def test_a_log_is_judged_with_flags_of_logs(tmp_path: Path, plan: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="--steps and --cpu: of running a folder"):
        raise_of(verify(tmp_path, like(plan), plan, "--steps", "9", "--cpu"))
    other = verify(tmp_path, log_samples.script(4), plan)
    assert isinstance(other.exception, InvalidInputError)
    assert (other.exception.field, other.exception.hint[:6]) == ("--plan", "--plan")


def test_what_is_far_from_its_plan_is_remarked_on(tmp_path: Path, plan: dict[str, Any]) -> None:
    fast = verify(tmp_path, like(plan, 0.2), plan)
    assert fast.exit_code == 0
    assert "a step is faster than the whole range" in fast.output
    log = f"{like(plan)}\ntorch.OutOfMemoryError: CUDA out of memory."
    ran_out = verify(tmp_path, log, plan).output
    assert "not in the log" not in ran_out
    assert "allocated before" in ran_out


NOISE = "W1128 torch/distributed/run.py:803] Setting OMP_NUM_THREADS"


@pytest.mark.parametrize("status", [0, 1])
def test_what_libraries_print_is_shown_of_a_run_that_fails_alone(
    tmp_path: Path, plan: dict[str, Any], status: int
) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "torchrun").mkdir()
    log = shlex.quote(f"{NOISE}\n{log_samples.script()}")
    (tmp_path / "torchrun" / "launch.sh").write_text(f"printf '%s\\n' {log}\nexit {status}\n")
    said = CliRunner().invoke(cli, ["verify", str(tmp_path)]).output
    assert "\nstep 2/" in said
    assert (NOISE in said) is bool(status)


@pytest.fixture(scope="module")
def grpo() -> dict[str, Any]:
    return plan_of(
        model="Qwen/Qwen2.5-0.5B",
        cluster={"gpu": "l40s", "gpus_per_node": 2},
        recipe={"job": "grpo", "vllm_mode": "colocate", "mean_completion_length": 300},
    )


def generated(plan: dict[str, Any], slower: float = 1.0, longer: float = 1.0) -> str:
    rollout = plan["rollout"]
    tokens = rollout["tokens_per_second"] * rollout["step_seconds"] * longer
    gib = max(plan["chosen"]["memory"]["peak_bytes"], rollout["generating_bytes"]) / 2**30
    said = {"tokens_per_step": tokens, "peak_gib": gib, "loss": 0.1, "world_size": 2}
    said["tokens_per_second"] = rollout["tokens_per_second"] / slower * longer
    return "\n".join(json.dumps({"step": step, **said}) for step in range(1, 13))


def test_a_run_of_grpo_is_compared_with_its_whole_step(
    tmp_path: Path, grpo: dict[str, Any]
) -> None:
    rollout = grpo["rollout"]
    result = verify(tmp_path, generated(grpo), grpo, "--json")
    assert result.exit_code == 0, result.output
    checks = {each["name"]: each for each in json.loads(result.output)["checks"]}
    step, speed = checks["step"], checks["tokens/s"]
    assert step["planned"] == pytest.approx(rollout["step_seconds"])
    assert step["low"] == pytest.approx(rollout["low_seconds"])
    assert step["high"] == pytest.approx(rollout["high_seconds"])
    assert speed["planned"] == pytest.approx(rollout["tokens_per_second"], rel=1e-3)
    held = max(rollout["training_bytes"], rollout["generating_bytes"])
    assert checks["reserved"]["planned"] == pytest.approx(held)
    shorter = verify(tmp_path, generated(grpo, longer=0.5), grpo, "--json")
    assert json.loads(shorter.output)["step_seconds"] == pytest.approx(
        rollout["step_seconds"], rel=1e-3
    )
    slow = verify(tmp_path, generated(grpo, slower=1.2), grpo, "--json")
    assert slow.exit_code == 4
    assert json.loads(slow.output)["reasons"][0]["name"] == max(
        rollout["phases"],
        key=lambda name: sum(each["seconds"] for each in rollout["phases"][name]),
    )


def test_a_server_is_no_part_of_what_the_training_process_holds(tmp_path: Path) -> None:
    apart = plan_of(
        model="Qwen/Qwen2.5-0.5B",
        cluster={"gpu": "l40s", "gpus_per_node": 2},
        recipe={"job": "grpo", "vllm_mode": "server"},
    )
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(apart))
    planned = read_planned(str(path))
    assert planned.reserved_bytes.likely == pytest.approx(apart["rollout"]["training_bytes"])


def test_a_step_of_grpo_is_no_training_step_of_a_machine(
    tmp_path: Path, grpo: dict[str, Any]
) -> None:
    machine = tmp_path / "machine.json"
    result = verify(tmp_path, generated(grpo), grpo, "--append", str(machine))
    assert isinstance(result.exception, InvalidInputError)
    assert result.exception.field == "--append"
    assert not machine.exists()


@pytest.mark.parametrize("target", ["torchrun", "trainer"])
def test_a_profile_is_advised_of_files_that_take_it(
    target: str, tmp_path: Path, plan: dict[str, Any]
) -> None:
    other = plan | {"launch": plan["launch"] | {"targets": [target]}}
    result = verify(tmp_path, like(other, slower=2.0, more_memory=3.0), other)
    assert ("--profile" in result.output) == (target == "torchrun")
