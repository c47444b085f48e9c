import json
import os
import re
import subprocess
import sys
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import planner.hardware.probe
from planner import __version__, cli
from planner.core.errors import (
    InvalidInputError,
    ModelNotFoundError,
    NothingFitsError,
    UnknownNameError,
    UnsupportedError,
)
from planner.hardware.probe import Machine, driver
from planner.hardware.topology import Topology, parse_topology

TOPOLOGY = "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n"


def run(*arguments: str, stdin: str = "") -> Result:
    """Run the command group in this process; PlannerErrors stay exceptions."""
    return CliRunner().invoke(cli.cli, arguments, input=stdin)


def process(*arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from planner.cli import main; main()", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, input=stdin, env=os.environ | env, check=False
    )


def machine(name: str, gpus: int) -> Machine:
    """A machine without NVLink, as the probe would describe it."""
    topology = Topology(
        num_gpus=gpus,
        nvlink={},
        pcie=dict.fromkeys(combinations(range(gpus), 2), "NODE"),
        gpu_names=(name,) * gpus,
    )
    return Machine(gpus=(), topology=topology, driver_version="580.95", findings=())


def test_suggest_prints_a_plan() -> None:
    result = run("suggest", "gpt2", "--gpus", "4")
    assert result.exit_code == 0
    assert "DDP in torch" in result.stdout
    assert "\n  Assumed  a100-sxm-80gb" in result.stdout


def modules_of(*words: str) -> set[str]:
    """Return what a process has imported once it has run a command."""
    code = (
        "import sys; from planner.cli import cli\n"
        f"cli.main({list(words)}, standalone_mode=False)\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(
        command, capture_output=True, check=True, text=True, env=os.environ | {"PATH": ""}
    )
    return set(found.stderr.split())


def test_a_command_imports_no_other_and_asks_no_driver_that_is_not_here() -> None:
    imported = modules_of("suggest", "gpt2", "--gpus", "4")
    assert "planner.cli.plans" in imported
    assert not imported & {"planner.cli.calibrate", "planner.cli.check", "planner.cli.doctor"}
    if not driver.has_library():
        assert not imported & {"planner.hardware.probe.nvml", "subprocess"}


def test_help_waits_for_no_arithmetic_and_no_schema() -> None:
    imported = modules_of("--help")
    assert "planner.cli.output" in imported
    assert not imported & {"numpy", "pydantic", "planner.domain.job"}


def test_a_mistyped_command_is_told_which_was_meant() -> None:
    ended = run("sugest", "gpt2")
    assert (ended.exit_code, "suggest" in ended.stderr) == (2, True)


def test_an_empty_topology_is_no_plan_for_an_assumed_gpu() -> None:
    result = process("suggest", "gpt2", "--topology", "-", stdin="")
    assert (result.returncode, result.stdout) == (2, "")
    assert "no header line with GPU0" in result.stderr


def test_json_is_one_document_on_stdout() -> None:
    answer = json.loads(run("suggest", "gpt2", "--gpus", "4", "--json").stdout)
    assert answer["chosen"]["strategy"]["zero_stage"] == 0


def test_flags_reach_the_request() -> None:
    arguments = ["--gpus", "2", "--gpu", "v100", "--nodes", "2", "--inter-node", "1x roce-200g"]
    arguments += ["--seq-len", "256", "--global-batch-size", "32", "--strategy", "zero-3"]
    arguments += ["--recompute", "full", "--micro-batch-size", "2", "--json"]
    arguments += ["--precision", "fp16-mixed", "--optimizer", "adamw", "--attention", "sdpa"]
    arguments += ["--no-compile", "--loss", "standard", "--framework", "torch"]
    answer = json.loads(run("suggest", "gpt2", *arguments).stdout)
    assert answer["job"]["cluster"]["world_size"] == 4
    assert answer["job"]["recipe"]["sequence_length"] == 256
    strategy = answer["chosen"]["strategy"]
    assert (strategy["zero_stage"], strategy["recompute"], strategy["micro_batch_size"]) == (
        3,
        "full",
        2,
    )
    assert answer["assumptions"] == []


def test_what_people_type_reaches_the_request() -> None:
    flags = ["--instance", "p5", "--seq-len", "8k", "--global-batch-size", "4M"]
    flags += ["--precision", "fp16", "--strategy", "fsdp", "--json"]
    page = "https://huggingface.co/meta-llama/Llama-3.1-8B"
    result = run("suggest", page, *flags)
    answer = json.loads(result.stdout)
    recipe = answer["job"]["recipe"]
    assert answer["job"]["cluster"]["instance"] == "p5.48xlarge"
    assert (recipe["sequence_length"], recipe["global_batch_size"]) == (8192, 512)
    assert recipe["precision"] == "fp16-mixed"
    assert answer["chosen"]["family"] == "zero-3"
    assert "4,194,304 tokens" in answer["assumptions"][0]["text"]


def test_a_size_of_data_parallelism_is_pinned_and_asked_about() -> None:
    flags = ["--gpus", "8", "--gpu", "h100"]
    pinned = json.loads(run("suggest", "gpt2", *flags, "--pin", "dp=4", "--json").stdout)
    strategy = pinned["chosen"]["strategy"]
    assert strategy["data_parallel_replicate_size"] * strategy["data_parallel_shard_size"] == 4
    same = json.loads(run("suggest", "gpt2", *flags, "--dp", "4", "--json").stdout)
    assert same["chosen"]["strategy"] == strategy
    asked = run("suggest", "gpt2", *flags, "--why", "hsdp").stdout
    assert asked.startswith("hsdp: the best of ")


def test_what_is_pinned_holds_for_what_is_asked_about_where_both_can_be() -> None:
    flags = ["--gpus", "4", "--gpu", "a100", "--json"]

    def answered(*more: str) -> dict[str, object]:
        found = json.loads(run("suggest", "gpt2", *flags, *more).stdout)["why"]
        return dict(found["strategy"])

    assert answered("--why", "tp=2")["micro_batch_size"] != 2
    held = answered("--pin", "micro_batch_size=2", "--why", "tp=2")
    assert (held["micro_batch_size"], held["tensor_parallel_size"]) == (2, 2)
    assert answered("--pin", "dp=4", "--why", "tp=2")["tensor_parallel_size"] == 2


def test_a_task_is_a_flag() -> None:
    arguments = ["--gpu", "t4", "--gpus", "2", "--task", "sequence-classification", "--json"]
    answer = json.loads(run("suggest", "roberta-base", *arguments).stdout)
    assert answer["chosen"]["model"]["parameters"] == 124_647_170


def test_a_topology_file_decides_the_link(tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    file.write_text(TOPOLOGY)
    arguments = ["suggest", "gpt2", "--gpus", "2", "--gpu", "rtx-3090", "--json", "--topology"]
    for source, stdin in ((str(file), ""), ("-", TOPOLOGY)):
        answer = json.loads(run(*arguments, source, stdin=stdin).stdout)
        assert answer["job"]["cluster"]["intra_node"]["name"] == "NVLink 3 x 4"


def test_estimate_takes_a_family_or_json() -> None:
    base = ["estimate", "gpt2", "--gpus", "4", "--json", "--strategy"]
    by_name = json.loads(run(*base, "ZeRO-2", "--micro-batch-size", "4").stdout)
    by_json = json.loads(run(*base, '{"zero_stage": 2, "micro_batch_size": 4}').stdout)
    assert by_name == by_json
    assert "It fits" in run(*base[:4], "--strategy", "ddp").stdout


def test_a_batch_answers_every_line_in_order() -> None:
    lines = [{"id": 1, "model": "gpt2"}, {"id": 2, "model": "no/such"}, {"id": 3, "model": "gpt2"}]
    stdin = "\n".join((*map(json.dumps, lines), "", "{broken", ""))
    result = run("estimate", "--batch", "-", stdin=stdin)
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(a["id"], a["ok"]) for a in answers] == [
        (1, True),
        (2, False),
        (3, True),
        (None, False),
    ]


def test_out_writes_the_bundle_once(tmp_path: Path) -> None:
    out = str(tmp_path / "plan")
    first = run("suggest", "gpt2", "--gpus", "2", "--out", out)
    assert first.exit_code == 0
    assert "README.md" in first.stderr
    assert "Run it" not in first.stdout
    written = {path.name for path in (tmp_path / "plan").iterdir()}
    assert written == {"README.md", "launcher.py", "plan.json", "trainer"}
    again = process("suggest", "gpt2", "--gpus", "2", "--out", out)
    assert again.returncode == 2
    assert "--force" in again.stderr
    with (tmp_path / "plan/trainer/train.py").open("a") as stream:
        stream.write("# mine\n")
    more = ("--target", "trainer,torchrun", "--launcher", "slurm")
    forced = run("suggest", "gpt2", "--gpus", "2", "--out", out, "--force", *more)
    assert forced.exit_code == 0
    assert "note: what you edited is kept: trainer/train.py.orig\n" in forced.stderr
    assert (tmp_path / "plan/torchrun/train.py").is_file()
    assert (tmp_path / "plan/launchers/slurm.sh").is_file()


@pytest.mark.parametrize(
    ("words", "exit_code", "said", "unknown"),
    [
        (["SHP006", "EFF002"], 0, ["SHP006 ", "EFF002 "], []),
        (["ddp", "fsdp"], 0, ["(DDP)", "(FSDP"], []),
        (["ONE002", "ZZZ999"], 2, ["ONE002 "], ["ZZZ999"]),
        (["ddp", "fsdpp", "zero9x"], 2, ["(DDP)"], ["fsdpp", "zero9x"]),
        (["torch.OutOfMemoryError:", "CUDA", "out", "of", "memory"], 0, ["ERR005"], []),
    ],
)
def test_each_name_is_explained_and_a_message_is_one(
    words: list[str], exit_code: int, said: list[str], unknown: list[str]
) -> None:
    result = run("explain", *words)
    assert (exit_code == 0) == (result.exception is None)
    assert [each for each in said if each not in result.stdout] == []
    assert [each for each in unknown if each not in str(result.exception)] == []


def test_a_batch_without_an_answer_exits_as_its_line() -> None:
    bad, good = (json.dumps({"model": name}) for name in ("no/such", "gpt2"))
    assert run("suggest", "--batch", "-", stdin=bad).exit_code == 5
    assert run("suggest", "--batch", "-", stdin="{").exit_code == 2
    assert run("estimate", "--batch", "-", stdin=f"{bad}\n{good}").exit_code == 0


def test_a_file_that_cannot_be_read_is_named() -> None:
    result = run("topology", "/proc/self/mem")
    assert (result.exit_code, "/proc/self/mem" in result.stderr) == (2, True)


def test_rules_gpus_and_models_are_listed() -> None:
    assert "ONE002" in run("explain").stdout
    assert "Why:" in run("explain", "one002").stdout
    assert "h100-sxm-80gb" in run("gpus").stdout
    assert "openai-community/gpt2" in run("models").stdout


def test_terms_are_listed_beside_rules_and_explained() -> None:
    listed = run("explain").stdout
    rules, _, terms = listed.partition("\nTerms\n")
    assert rules.startswith("Rules and findings\n")
    assert "ONE001" in rules
    assert "zero-3" in terms
    shown = run("explain", "tensor", "parallelism").stdout
    assert shown == run("explain", "Tensor_Parallelism").stdout
    assert shown.startswith("Tensor parallelism (TP)\n")
    assert "  megatron      0.16.1   --tensor-model-parallel-size\n" in shown
    assert run("explain", "ONE001").stdout.startswith("ONE001 one-gpu-only (advice)\n\n")
    assert run("explain", "TOP001").stdout.startswith("TOP001\n\n")


@pytest.mark.parametrize("columns", ["40", "72", "200"])
def test_a_term_is_wrapped_to_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    prose = run("explain", "zero").stdout.partition("\nNames\n")[0]
    longest = max(len(line) for line in prose.splitlines())
    assert int(columns) - 20 < longest <= int(columns)


def test_what_is_documented_of_a_code_is_folded_to_the_terminal() -> None:
    """Whatever the lines of its source are: none but the last of a paragraph has room for the next word."""
    for paragraph in run("explain", "COM006").stdout.rstrip().split("\n\n")[1:]:
        lines = paragraph.splitlines()
        for line, after in pairwise(lines):
            assert len(line) <= 100 < len(line) + 1 + len(after.split()[0])


@pytest.mark.parametrize(
    ("word", "entry"),
    [
        ("trust", "trust"),
        ("link speed", "trust"),
        ("headroom", "headroom"),
        ("tight", "headroom"),
        ("exposed", "exposed-communication"),
        ("slower compute", "exposed-communication"),
        ("overlap slowdown", "exposed-communication"),
    ],
)
def test_the_words_of_a_first_screen_are_explained(word: str, entry: str) -> None:
    assert json.loads(run("explain", word, "--json").stdout)["name"] == entry


def test_explain_prints_what_rest_answers() -> None:
    term = json.loads(run("explain", "sharded", "--json").stdout)
    assert (term["name"], term["see"][0]) == ("zero", "zero-1")
    rule = json.loads(run("explain", "one001", "--json").stdout)
    everything = json.loads(run("explain", "--json").stdout)
    assert rule in everything["rules"]
    assert term in everything["terms"]


@pytest.mark.parametrize(
    ("command", "filter_text", "has", "has_not"),
    [
        ("gpus", "3090", "rtx-3090ti", "h100"),
        ("gpus", "RTX 6000 Ada", "rtx-6000-ada", "rtx-3090"),
        ("models", "llama-3", "meta-llama/Llama-3.1-8B", "gpt2"),
        ("instances", "h100", "p5.48xlarge", "p4d"),
        ("links", "nvl", "nvlink-4", "ethernet"),
    ],
)
def test_a_list_is_filtered_and_has_json(
    command: str, filter_text: str, has: str, has_not: str
) -> None:
    whole, some = run(command).stdout, run(command, filter_text).stdout
    assert has in some
    assert has_not not in some
    assert has_not in whole
    listed = json.loads(run(command, filter_text, "--json").stdout)[command]
    assert has in json.dumps(listed)
    assert len(json.loads(run(command, "--json").stdout)[command]) > len(listed)


def test_a_filter_that_finds_nothing_names_the_nearest() -> None:
    error = run("models", "gtp2").exception
    assert isinstance(error, UnknownNameError)
    assert "did you mean" in error.hint


def test_instances_are_listed_and_shown() -> None:
    assert "p4d.24xlarge" in run("instances").stdout
    shown = run("instances", "P4D.24xlarge").stdout
    assert shown.startswith("p4d.24xlarge (AWS)")
    assert "400 Gbit/s" in shown
    assert json.loads(run("instances", "p4d.24xlarge", "--json").stdout)["usd_per_hour"] == 21.9576
    listed = json.loads(run("instances", "--json").stdout)["instances"]
    assert len(listed) == len(run("instances").stdout.splitlines()) - 1


def test_instances_of_a_cloud_are_listed() -> None:
    rows = run("instances", "lambda").stdout.splitlines()[1:]
    assert len(rows) > 2
    assert all(row.split()[0] == "Lambda" for row in rows)


def test_a_topology_takes_the_gpu_that_a_plan_of_it_takes(tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    file.write_text("\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n")
    assert "(a100-pcie-80gb, assumed; " in run("topology", str(file)).stdout
    assert "on 2 x a100-pcie-80gb: " in run("suggest", "gpt2", "--topology", str(file)).stdout


def test_an_instance_stands_for_its_gpus_and_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner.hardware.probe, "probe", lambda: machine("NVIDIA L4", 1))
    result = run("suggest", "gpt2", "--instance", "p4d.24xlarge", "--nodes", "2", "--json")
    cluster = json.loads(result.stdout)["job"]["cluster"]
    assert (cluster["gpu"], cluster["world_size"]) == ("a100-sxm-40gb", 16)
    assert cluster["inter_node"]["name"] == "p4d.24xlarge network, 400 Gbit/s"
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("flag", "way"), [("--peer-to-peer", "with P2P"), ("--no-peer-to-peer", "through host memory")]
)
def test_peer_access_is_a_switch(flag: str, way: str) -> None:
    result = run("suggest", "gpt2", "--gpu", "4090:2", flag, "--json")
    link = json.loads(result.stdout)["job"]["cluster"]["intra_node"]["name"]
    assert link.endswith(way)


def test_mixed_gpus_are_a_list_and_their_waste_a_note() -> None:
    result = run("suggest", "gpt2", "--gpu", "3090:2,3060:1")
    assert "on 2 x rtx-3090: " in result.stdout
    assert "1 of 3 GPUs " in result.stdout
    assert result.stderr.startswith("note: with all of them every rank is planned as the smallest")


def test_a_model_is_described_in_text_and_json() -> None:
    text = run("model", "gpt2").stdout
    assert "124,439,808 parameters" in text
    assert "qkv_proj 768 x 2304" in text
    assert json.loads(run("model", "gpt2", "--json").stdout)["parameters"] == 124_439_808


def test_main_turns_errors_into_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {
        ("explain", "ZZZ"): 2,
        ("suggest", "/no/such/config.json"): 5,
        ("suggest", "meta-llama/Llama-2-70b-hf", "--gpu", "4090"): 3,
        ("estimate", "gpt2", "--strategy", "[1]"): 2,
        ("suggest",): 2,
    }
    for arguments, code in cases.items():
        monkeypatch.setattr("sys.argv", ["planner", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert caught.value.code == code
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "rror" in captured.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--gpus 3 --pin tp=2", "(--pin NAME=VALUE)"),
        ("--gpus 3 --pin=tp=2", "(--pin NAME=VALUE)"),
        ("--gpus 3 --tp 2", "(--tp N)"),
        ("--gpus 3 --strategy tp --tp 2", "(--strategy NAME)"),
        ("--gpus 4 --pin zero=7", "strategy.zero_stage: must be at most 3, not 7"),
        ("--gpus 4 --nodes 1000000", "--nodes N: must be at most 65,536, not 1,000,000"),
        (
            "--gpus 4 --nodes 8 --global-batch-size 1000001 --dp 32",
            "nearest: 1,000,000 or 1,000,032",
        ),
    ],
)
def test_an_error_names_what_was_typed_and_its_numbers_are_read(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    named: str,
) -> None:
    monkeypatch.setattr("sys.argv", ["planner", "suggest", "gpt2", *words.split()])
    with pytest.raises(SystemExit):
        cli.main()
    assert named in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("trainer", "accelerate"),
        ("torchrun", "torch"),
        ("FSDP", "torch"),
        ("zero", "deepspeed"),
        ("Megatron-LM", "megatron"),
    ],
)
def test_a_framework_goes_by_what_people_call_it(name: str, meant: str) -> None:
    asked = ("estimate", "gpt2", "--gpus", "2", "--gpu", "h100", "--json", "--framework")
    assert json.loads(run(*asked, name).stdout) == json.loads(run(*asked, meant).stdout)


def test_a_misspelt_framework_names_the_nearest() -> None:
    error = run("estimate", "gpt2", "--gpus", "2", "--framework", "megatorn").exception
    assert isinstance(error, UnsupportedError)
    assert error.hint.startswith("did you mean megatron? known: accelerate, ")


def test_a_revision_is_asked_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for command in (["model"], ["suggest", "--gpus", "2"]):
        result = run(command[0], "gpt2", *command[1:], "--revision", "v2")
        assert isinstance(result.exception, ModelNotFoundError)
        assert "gpt2" in result.exception.message


def test_a_strategy_that_is_no_json_object_is_refused() -> None:
    result = run("estimate", "gpt2", "--strategy", "{broken")
    assert isinstance(result.exception, InvalidInputError)


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.cli, "main", interrupted)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 130


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["suggest", "gpt2", "--gpus", "0"], 2, "--gpus N"),
        (["suggest", "gpt2", "--gpus", "-4"], 2, "--gpus N"),
        (["suggest", "gpt2", "--gpus", "four"], 2, "--gpus"),
        (["suggest", "gpt2", "--gpus", "3", "--global-batch-size", "16"], 2, "15 or 18"),
        (["suggest", "gpt2", "--gpu", "h101"], 2, "did you mean h100"),
        (["suggest", "gpt2", "--gpu", "3090:2,3060:1", "--gpus", "2"], 2, "--gpus 3"),
        (["suggest", "gpt2", "--instance", "p4d.24xlarg"], 2, "did you mean p4d.24xlarge"),
        (["suggest", "gpt2", "--instance", "g5.xlarge", "--gpus", "2"], 2, "--gpus 1"),
        (["instances", "p9"], 2, "no instance has 'p9'"),
        (["suggest", "gpt2", "--strategy", "zero-9"], 2, "did you mean zero-"),
        (["suggest", "gpt2", "--strategy", "[1]"], 2, "is no JSON object"),
        (["suggest", "../../etc/passwd"], 5, "MODEL"),
        (["suggest", "$(reboot)"], 2, "MODEL"),
        (["suggest", "gpt2\nreboot"], 2, "MODEL"),
        (["suggest", "meta-llama/Llama-2-70b-hf", "--gpus", "2", "--gpu", "4090"], 3, "too much"),
        (["explain", "ZZZ"], 2, "unknown code or term"),
        (["estimate"], 2, "--batch"),
        (["suggest"], 2, "--batch"),
        (["suggest", "--batch", "missing.jsonl"], 2, "No such file"),
        (["suggest", "gpt2", "--batch", "-"], 2, "leave out '[MODEL]'"),
        (["estimate", "--gpus", "4", "--batch", "-"], 2, "leave out '--gpus'"),
    ],
)
def test_every_failure_is_one_message_and_the_contracts_code(
    arguments: list[str], code: int, said: str, tmp_path: Path
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from planner.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    assert result.returncode == code
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (["suggest", "gpt2", "--gpu", "h101"], 2, "UnknownNameError"),
        (["suggest", "gpt2", "--gpus", "four"], 2, "InvalidInputError"),
        (["estimate", "gpt2", "--gpus", "0"], 2, "InvalidRequestError"),
        (["suggest", "meta-llama/Llama-2-70b-hf", "--gpu", "4090"], 3, "NothingFitsError"),
        (["memory", "/no/such/config.json"], 5, "ModelNotFoundError"),
        (["explain", "ZZZ"], 2, "UnknownNameError"),
        (["instances", "p99"], 2, "UnknownNameError"),
    ],
)
def test_an_error_is_json_where_json_was_asked_for(
    arguments: list[str],
    code: int,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["planner", *arguments, "--json"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == code
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert not answer["ok"]
    assert answer["error"]["type"] == kind
    assert answer["error"]["message"]
    assert captured.err == ""


def test_an_estimate_that_does_not_fit_is_printed_and_exits_three() -> None:
    command = ["estimate", "meta-llama/Llama-2-7b-hf", "--gpu", "4090"]
    text, answer = run(*command), run(*command, "--json")
    assert (text.exit_code, answer.exit_code) == (3, 3)
    assert text.stdout.startswith("It does not fit: ")
    assert not json.loads(answer.stdout)["fits"]
    assert run("estimate", "gpt2", "--gpu", "4090").exit_code == 0
    line = json.dumps({"model": "meta-llama/Llama-2-7b-hf", "cluster": {"gpu": "4090"}})
    assert run("estimate", "--batch", "-", stdin=line).exit_code == 0


def test_the_shell_can_complete() -> None:
    done = process(_PLANNER_COMPLETE="bash_complete", COMP_WORDS="planner sugg", COMP_CWORD="1")
    assert done.stdout == "plain,suggest\n"


def test_an_unknown_model_names_the_nearest_and_exits_five() -> None:
    result = process("suggest", "gpt3", HF_HUB_OFFLINE="1")
    assert result.returncode == 5
    assert "did you mean gpt2" in result.stderr


@pytest.mark.parametrize(
    ("env", "coloured"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_colour_follows_the_environment(env: dict[str, str], *, coloured: bool) -> None:
    stdout = process("suggest", "gpt2", "--gpus", "2", **env).stdout
    assert ("\x1b[" in stdout) is coloured


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -c 'from planner.cli import main; main()' models | head -1"
    result = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert result.stdout.strip()
    assert result.stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("suggest", "gpt2", "--gpus", "2"),
        ("suggest", "gpt2", "--gpus", "2", "--json"),
        ("suggest", "gpt2", "--gpu", "h101", "--json"),
        ("gpus",),
        ("--version",),
    ],
)
def test_a_full_disk_is_said_in_one_line(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", "from planner.cli import main; main()", *arguments]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        result = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.returncode == 2
    said = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
    assert said == ["error: cannot write the answer: No space left on device"]


def test_gpus_of_this_machine_are_taken_where_none_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planner.hardware.probe, "probe", lambda: machine("NVIDIA L4", 3))
    result = run("suggest", "gpt2", "--json")
    cluster = json.loads(result.stdout)["job"]["cluster"]
    assert (cluster["gpu"], cluster["gpus_per_node"]) == ("l4", 3)
    assert "found 3 x NVIDIA L4" in result.stderr


def test_the_probe_shows_what_it_found_and_writes_what_suggest_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = machine("NVIDIA L40S", 4)
    monkeypatch.setattr(planner.hardware.probe, "probe", lambda: found)
    file = tmp_path / "node.json"
    result = run("probe", "--json", "--out", str(file))
    assert json.loads(result.stdout)["driver_version"] == "580.95"
    assert parse_topology(file.read_text()) == found.topology
    assert "580.95" in run("probe").stdout
    error = run("probe", "--out", str(file)).exception
    assert isinstance(error, InvalidInputError)
    assert error.message.endswith("exists")
    assert run("probe", "--out", str(file), "--force").exit_code == 0
    monkeypatch.setattr(planner.hardware.probe, "probe", lambda: None)
    answer = json.loads(run("suggest", "gpt2", "--topology", str(file), "--json").stdout)
    cluster = answer["job"]["cluster"]
    assert (cluster["gpu"], cluster["gpus_per_node"]) == ("l40s", 4)


def test_a_file_that_cannot_be_written_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(planner.hardware.probe, "probe", lambda: machine("NVIDIA L40S", 1))
    error = run("probe", "--out", str(tmp_path / "no" / "node.json")).exception
    assert isinstance(error, InvalidInputError)
    assert "cannot write" in error.message


def test_without_a_gpu_the_probe_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner.hardware.probe, "probe", lambda: None)
    monkeypatch.setattr(planner.hardware.probe, "why_none", lambda: "no NVIDIA GPU here: asleep")
    error = run("probe").exception
    assert isinstance(error, UnsupportedError)
    assert error.message.endswith("asleep")


DUMPS = Path(__file__).parents[1] / "topologies"


def test_a_topology_is_drawn_with_the_ranks_that_suit_it() -> None:
    bridged = str(DUMPS / "a100_pcie80_2bridged_pairs_2numa_tabs.txt")
    shown = run("topology", bridged, "--gpu", "a100-pcie-80gb", "--tp", "2").stdout
    assert "GPU0-1: NV12" in shown
    assert "data 0  [GPU0 GPU1]" in shown
    mesh = str(DUMPS / "dgx1_v100_pytorch_ddp_spaces.txt")
    assert "CUDA_VISIBLE_DEVICES=0,3,2,1,4,7,6,5" in run("topology", mesh, "--gpu", "v100").stdout
    single = run("topology", "-", stdin=(DUMPS / "single_gpu_lmdeploy_tabs.txt").read_text())
    assert "What a ring" not in single.stdout
    unnamed = run("topology", bridged).stdout
    assert "name it with --gpu: one of a100-pcie-40gb, a100-pcie-80gb" in unnamed.splitlines()[-1]
    answer = json.loads(run("topology", bridged, "--json").stdout)
    assert answer["islands"] == [[0, 1], [2, 3]]
    error = run("topology", bridged, "--tp", "3").exception
    assert isinstance(error, InvalidInputError)
    assert "3 does not divide 4 GPUs" in error.message
    for flags in ([], ["--json"]):
        wrong = run("topology", bridged, "--gpu", "zz", *flags)
        assert isinstance(wrong.exception, InvalidInputError)
        assert wrong.exception.message == "unknown GPU 'zz'"
        assert not wrong.stdout


def test_findings_are_explained_like_rules() -> None:
    assert "Why:" in run("explain", "top001").stdout
    assert "PRB005" in run("explain").stdout


def test_memory_shows_the_suggested_layout_or_the_one_that_is_given() -> None:
    suggested = run("memory", "gpt2", "--gpus", "4")
    assert suggested.stdout.startswith("It fits: DDP")
    assert "\nAssumed a100-sxm-80gb, " in suggested.stdout
    flags = ["--gpus", "8", "--gpu", "h100", "--tp", "2", "--sequence-parallel", "--pp", "4"]
    flags += ["--framework", "megatron", "--seq-len", "1024", "--global-batch-size", "8"]
    given = run("memory", "gpt2-large", *flags, "--strategy", "ddp", "--json")
    assert [stage["stage"] for stage in json.loads(given.stdout)["stages"]] == [0, 1, 2, 3]


def test_memory_of_what_fits_nowhere_is_the_smallest_layout() -> None:
    result = run("memory", "meta-llama/Llama-2-70b-hf", "--gpus", "2", "--gpu", "t4")
    assert "It does not fit" in result.stdout


def test_adapters_are_flags() -> None:
    flags = ["--gpus", "1", "--gpu", "4090", "--method", "qlora", "--seq-len", "512"]
    flags += ["--lora-rank", "8", "--lora-targets", "q_proj,k_proj", "--global-batch-size", "4"]
    result = run("memory", "meta-llama/Llama-2-7b-hf", *flags)
    assert "of frozen weights" in result.stdout
    assert "Assumed bf16-mixed, adamw-fused, sdpa" in result.stdout
    assert result.stdout.count("Assumed") == 1
    everything = run("memory", "meta-llama/Llama-2-7b-hf", *flags, "--lora-targets", "all-linear")
    assert everything.stdout != result.stdout


def test_the_length_of_a_run_gives_its_hours_and_price() -> None:
    flags = ["--instance", "p4d.24xlarge", "--seq-len", "1024", "--global-batch-size", "512"]
    said = " ".join(run("suggest", "gpt2", *flags, "--tokens", "10B").stdout.split())
    assert "Run 10.0 B tokens in 19,074 steps: " in said
    assert "on demand (2026-01-21)" in said
    answer = json.loads(run("suggest", "gpt2", *flags, "--tokens", "10B", "--json").stdout)
    assert answer["chosen"]["training"]["steps"] == 19_074
    epochs = run("suggest", "gpt2", *flags, "--samples", "1000", "--epochs", "2.5").stdout
    assert "tokens in 5 steps" in epochs
    assert "GPU-hours" not in run("suggest", "gpt2", *flags).stdout


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (["--tokens", "many"], "cannot read 'many'"),
        (["--epochs", "3"], "--epochs needs the size"),
        (["--tokens", "1B", "--samples", "5"], "in tokens and in samples"),
    ],
)
def test_a_run_that_cannot_be_read_is_refused(flags: list[str], what: str) -> None:
    error = run("suggest", "gpt2", "--gpus", "1", *flags).exception
    assert isinstance(error, InvalidInputError)
    assert what in error.message


def test_a_plan_that_no_target_writes_is_still_shown(tmp_path: Path) -> None:
    """gpt2 in nanotron: the plan holds, the files do not exist."""
    result = run(
        "suggest", "gpt2", "--gpus", "2", "--framework", "nanotron", "--out", str(tmp_path / "plan")
    )
    assert "Files    none" in result.stdout
    assert not (tmp_path / "plan").exists()


def test_no_gpus_at_all_are_refused() -> None:
    result = process("suggest", "gpt2", "--gpus", "4", "--max-gpus", "0")
    assert result.returncode == 2
    assert "--max-gpus" in result.stderr


def test_every_flag_that_is_offered_makes_the_job_fit_and_takes_what_is_said() -> None:
    asked = ("suggest", "meta-llama/Llama-2-7b-hf", "--gpus", "1", "--gpu", "4090")
    with pytest.raises(NothingFitsError) as refused:
        CliRunner().invoke(cli.cli, asked, catch_exceptions=False, standalone_mode=False)
    cost = r"(?: in ([0-9.]+ GiB) of each GPU, (\S+ s) a step of ([0-9]+) sequences)?"
    offered = re.findall(rf"would fit \((--[a-z-]+) ([^)]+)\){cost}", refused.value.hint)
    assert {"--method", "--nodes"} <= {flag for flag, *_ in offered}
    assert any(batch for *_, batch in offered)
    for flag, value, memory, step, batch in offered:
        planned = run(*asked, flag, value)
        assert planned.exit_code == 0, (flag, value)
        said = " ".join(planned.stdout.split())
        assert f"Fits {memory}" in said
        assert f"Speed {step}" in said
        assert f", {batch} sequences per step" in said or not batch


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            "--gpus 0 --nodes 0",
            "error: --gpus N: must be at least 1, not 0\nerror: --nodes N: must be at least 1, not 0\n",
        ),
        (
            "--gpus 0 --seq-len -1 --epochs 2",
            (
                "error: cannot read '-1' as the tokens of a sequence (--seq-len N)\n"
                "hint: such as 4096, or 128k for 131072\n"
                "error: --epochs needs the size of the data set (--epochs)\nhint: add --samples N\n"
                "error: --gpus N: must be at least 1, not 0\n"
            ),
        ),
        (
            "--recompute-modules foo",
            (
                "error: --recompute-modules NAMES: must be 'core_attn', 'layernorm', 'moe_act', 'mlp',"
                " 'moe', 'mla_up_proj' or 'shared_experts', not 'foo'\n"
                "hint: known: core_attn, layernorm, moe_act, mlp, moe, mla_up_proj, shared_experts\n"
            ),
        ),
    ],
)
def test_all_that_is_wrong_is_said_at_once_by_flag(typed: str, said: str) -> None:
    ended = process("suggest", "gpt2", *typed.split())
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", said)


def test_a_flag_that_only_files_need_is_said_to_change_nothing() -> None:
    ended = run("suggest", "gpt2", "--gpus", "1", "--gpu", "a100", "--force")
    assert ended.exit_code == 0
    assert "note: --force changes nothing without --out or --lock: no file" in ended.stderr
    ended = run(
        "suggest", "gpt2", "--gpus", "1", "--gpu", "a100", "--target", "all", "--launcher", "ssh"
    )
    assert "note: --target, --launcher change nothing without --out" in ended.stderr


def test_a_gpu_may_be_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.hardware.probe.probe", lambda: None)
    refused = run("suggest", "gpt2", "--require-gpu")
    assert isinstance(refused.exception, InvalidInputError)
    assert "--gpu NAME" in refused.exception.hint
    assert run("suggest", "gpt2", "--require-gpu", "--gpu", "a100").exit_code == 0
    monkeypatch.setattr("planner.hardware.probe.probe", lambda: machine("NVIDIA A100-SXM4-80GB", 2))
    assert run("suggest", "gpt2", "--require-gpu").exit_code == 0


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "planner", "--version"]
    ended = subprocess.run(command, capture_output=True, check=True, text=True)
    assert ended.stdout == f"planner, version {__version__}\n"


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (("suggest", "mixtral", "8x7b", "--gpus", "8"), "mixtral-8x7b"),
        (("suggest", "gpt2", "--gpus", "4", "--batch", "4"), "--global-batch-size 4"),
        (("doctor", "CUDA out of memory"), "planner explain 'CUDA out of memory'"),
        (
            ("suggest", "mixtral-8x7b", "--gpus", "8", "--ep", "8", "--framework", "torch"),
            "--framework deepspeed",
        ),
    ],
)
def test_what_is_typed_in_the_wrong_place_is_told_where_it_goes(
    words: tuple[str, ...], instead: str
) -> None:
    failed = process(*words)
    assert failed.returncode == 2
    assert instead in " ".join(failed.stderr.split())
