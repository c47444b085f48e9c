"""Configurations of other tools through the gate: what they amount to, limits, formats, exit codes."""

import json
import tomllib
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from committed import plan_answer

from planner import cli
from planner.core.errors import InvalidInputError
from planner.gate import ci_formats, formats
from planner.gate.configurations import COMMAND, Asked, judge_configurations
from planner.gate.judge import Wishes, judge_files
from planner.gate.limits import read_limit
from planner.gate.verdict import verdicts_answer
from planner.report.values import Terminal

A100 = {"gpu": "a100-sxm-80gb", "gpus_per_node": 8}
LLAMA = Asked(model="meta-llama/Llama-2-7b-hf", cluster=A100, recipe={"sequence_length": 2048})
DEEPSPEED = """{
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 8,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}
}
"""
RIGHT = DEEPSPEED.replace("64", "256")
MEGATRON = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --bf16 "
    "--tensor-model-parallel-size 4 --sequence-parallel --micro-batch-size 2 "
    "--global-batch-size 32 --use-distributed-optimizer --recompute-activations"
)
HARM = "torchrun --nproc_per_node '::error::x%0A' '--[x](http://e)\x1b[31m' train.py @everyone"


@pytest.mark.parametrize(
    ("file", "text", "family", "more"),
    [
        ("a.json", RIGHT, "zero-3", {"micro_batch_size": 4, "gradient_accumulation_steps": 8}),
        (
            "a.json",
            RIGHT.replace('"stage": 3', '"stage": 2, "offload_optimizer": {"device": "cpu"}'),
            "zero-2+offload",
            {"offload": "optimizer"},
        ),
        ("a.yaml", "distributed_type: MULTI_GPU\nnum_processes: 8", "ddp", {"zero_stage": 0}),
        (
            "a.yaml",
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP",
            "zero-2",
            {},
        ),
        (
            "a.yaml",
            "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n  offload_param_device: cpu",
            "zero-3+offload",
            {"offload": "optimizer+parameters"},
        ),
        (
            "a.py",
            "TrainingArguments(per_device_train_batch_size=2, gradient_checkpointing=True, bf16=True)",
            "ddp",
            {"recompute": "full", "micro_batch_size": 2, "gradient_accumulation_steps": 1},
        ),
        (
            "a.sh",
            MEGATRON,
            "tp+zero-1",
            {"tensor_parallel_size": 4, "gradient_accumulation_steps": 8, "recompute": "selective"},
        ),
        (
            "a.sh",
            f"{MEGATRON} --recompute-modules layernorm mlp",
            "tp+zero-1",
            {"recompute": "selective", "recompute_modules": "layernorm, mlp"},
        ),
        (
            "a.toml",
            "[training]\nlocal_batch_size = 1\n[parallelism]\ntensor_parallel_degree = 2",
            "tp+zero-3",
            {"data_parallel_shard_size": 4, "micro_batch_size": 1},
        ),
    ],
)
def test_files_amount_to_a_layout(file: str, text: str, family: str, more: dict[str, Any]) -> None:
    verdict = judge_configurations({file: text}, LLAMA)
    assert verdict.document.facts is not None, verdict.notes
    values = verdict.document.facts.values
    assert values["family"] == family
    assert {name: values[f"strategy.{name}"] for name in more} == more


@pytest.mark.parametrize(
    ("cluster", "is_wrong"),
    [
        ({"gpu": "h100"}, False),
        ({"inter_node": "400Gbit/s"}, False),
        ({"nodes": 2}, False),
        ({"gpu": "h100", "gpus_per_node": 8}, False),
        ({"instance": "p5.48xlarge"}, False),
        ({"gpu": "h100", "gpus_per_node": 8, "nodes": 1}, True),
        ({"gpu": "h100", "gpus_per_node": 4}, True),
    ],
)
def test_what_is_named_beside_a_command_leaves_its_number_of_gpus(
    cluster: dict[str, Any], *, is_wrong: bool
) -> None:
    command = MEGATRON.replace("torchrun", "torchrun --nnodes=2 --rdzv-endpoint h:1")
    verdict = judge_configurations({COMMAND: command}, replace(LLAMA, cluster=cluster))
    started = [
        check.message for check in verdict.checks if "processes are started" in check.message
    ]
    assert bool(started) is is_wrong
    assert verdict.document.facts is not None
    gpus = 16 if not is_wrong else cluster["gpus_per_node"]
    assert verdict.document.facts.text("job.cluster.world_size") == str(gpus)


def test_a_card_alone_does_not_say_how_many_there_are() -> None:
    verdict = judge_configurations({"a.json": RIGHT}, replace(LLAMA, cluster={"gpu": "v100"}))
    assert verdict.notes == ("not estimated: how many GPUs is not said (--gpus)",)
    assert [check.message for check in verdict.checks if "bf16" in check.message]


def test_a_deepspeed_file_that_was_not_given_is_no_ddp(tmp_path: Path) -> None:
    text = "args = TrainingArguments(output_dir='out', deepspeed='ds.json')"
    script = str(tmp_path / "train.py")
    verdict = judge_configurations({script: text}, LLAMA)
    assert verdict.document.facts is None
    assert verdict.notes[0].endswith("ds.json that " + script + " names in line 1 is not there")
    (tmp_path / "ds.json").write_text(RIGHT)
    for asked in (LLAMA, replace(LLAMA, allow_paths=False)):
        (note,) = judge_configurations({script: text}, asked).notes
        assert note.endswith("is not among the files: give it too")
    command = "deepspeed --num_gpus 8 train.py --deepspeed_config ds.json"
    (note,) = judge_configurations({COMMAND: command}, LLAMA).notes
    assert note.startswith("not estimated: the DeepSpeed configuration that command line names")
    assert judge_configurations({script: text, "ds.json": RIGHT}, LLAMA).document.facts is not None


def test_offload_to_nvme_is_told_as_what_it_is_estimated_as() -> None:
    device = '"offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}'
    text = RIGHT.replace('"stage": 3', f'"stage": 3, {device}')
    small = replace(LLAMA, cluster={"gpu": "4090", "gpus_per_node": 4})
    notes = judge_configurations({"a.json": text}, small).notes
    assert any("NVMe is estimated as if host memory held it" in note for note in notes)
    assert not any("nothing better" in note for note in notes)


def test_modules_that_recompute_are_named_in_what_a_file_amounts_to() -> None:
    script = f"{MEGATRON} --recompute-modules mlp core_attn"
    verdict = judge_configurations({"a.sh": script}, LLAMA)
    text = formats.as_text((verdict,), Terminal())
    assert "recompute selective (core_attn, mlp): " in text


def test_a_verdict_has_fault_place_fit_gain_and_what_mends_it() -> None:
    verdict = judge_configurations({"ds.json": DEEPSPEED}, LLAMA)
    text = formats.as_text((verdict,), Terminal())
    assert "FAIL  CFG001  ds.json:2: train_batch_size is 64, but 4 per GPU x 8" in text
    assert "pass  CHK001  fits: " in text
    assert "trains with zero-3, micro-batch 4, 8 accumulated, recompute none: " in text
    assert "the planner " in text
    assert '-  "train_batch_size": 64,\n+  "train_batch_size": 256,' in verdict.patch
    assert text.endswith("1 error")


def test_what_does_not_fit_says_what_would() -> None:
    asked = Asked(model="meta-llama/Llama-2-7b-hf", cluster=A100, recipe={"sequence_length": 2048})
    text = "TrainingArguments(per_device_train_batch_size=64, bf16=True, output_dir='o')"
    verdict = judge_configurations({"a.py": text}, asked)
    assert not verdict.fits
    assert "which fits" in " ".join(verdict.notes)


def test_the_model_may_be_named_by_the_files() -> None:
    text = "torchrun --nproc_per_node 4 run_clm.py --model_name_or_path gpt2 --output_dir o --bf16"
    verdict = judge_configurations({"run.sh": text}, Asked())
    assert verdict.title == "openai-community/gpt2 on 4 x a100-sxm-80gb with ddp"


def test_a_name_in_a_file_under_review_is_not_looked_up_elsewhere() -> None:
    text = "torchrun --nproc_per_node 4 run_clm.py --model_name_or_path evil/model --output_dir o"
    verdict = judge_configurations({"run.sh": text}, Asked())
    assert verdict.document.facts is None
    assert "evil/model is not in the catalogue; --model" in verdict.notes[0]


def test_limits_hold_for_what_the_files_amount_to() -> None:
    verdict = judge_configurations({"a.json": RIGHT}, LLAMA, [read_limit("1GiB", "--max-memory")])
    assert [check.code for check in verdict.broken] == ["CHK002"]


def test_sarif_and_github_and_json_have_the_line() -> None:
    verdicts = (judge_configurations({"ds.json": DEEPSPEED}, Asked(cluster=A100)),)
    github = ci_formats.as_github(verdicts, Terminal())
    assert "::error file=ds.json,line=2,title=CFG001 batch-does-not-multiply::" in github
    run = json.loads(ci_formats.as_sarif(verdicts, Terminal()))["runs"][0]
    (result,) = run["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 2}
    assert run["tool"]["driver"]["rules"][0]["shortDescription"]["text"].startswith(
        "train_batch_size is not micro-batch"
    )
    answer = verdicts_answer(verdicts)
    assert answer["files"][0]["patch"].startswith("--- ds.json\n+++ ds.json\n")
    assert answer["files"][0]["checks"][0]["line"] == 2


def test_words_of_a_file_command_no_format() -> None:
    verdicts = (judge_configurations({"a\n::b.sh": HARM}, Asked(cluster=A100)),)
    for line in ci_formats.as_github(verdicts, Terminal()).splitlines():
        assert line.startswith(("::error ", "::warning ", "::notice "))
    assert "\x1b" not in formats.as_text(verdicts, Terminal())
    assert "@everyone" not in formats.as_markdown(verdicts, Terminal())


def test_a_plan_and_a_configuration_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(plan_answer()))
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    files = [str(tmp_path / name) for name in ("plan.json", "ds.json")]
    kinds = [each.document.kind for each in judge_files(files, Wishes(), BytesIO())]
    assert kinds == ["plan", "configuration"]


def test_a_configuration_has_no_baseline(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    with pytest.raises(InvalidInputError, match="no baseline"):
        judge_files([str(tmp_path / "ds.json")], Wishes(baseline="x.json"), BytesIO())


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["wrong.json", "--gpus", "8"], 4),
        (["right.json", "--gpus", "8"], 0),
        (["warned.yaml"], 0),
        (["--command", "torchrun train.py"], 4),
        (["--command", "echo hello"], 2),
        (["broken.yaml"], 2),
        (["folder.yaml"], 2),
        (["none.yaml"], 2),
        (["wrong.json", "--gpus", "8", "--gpu", "nosuch"], 2),
    ],
)
def test_each_outcome_has_its_exit_code(
    arguments: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong.json").write_text(DEEPSPEED)
    (tmp_path / "right.json").write_text(RIGHT)
    (tmp_path / "warned.yaml").write_text("output_dir: o\nbf16: true\ndataloader_num_workers: 0\n")
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "folder.yaml").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["planner", "check", *arguments])
    ended = 0
    try:
        cli.main()
    except SystemExit as end:
        ended = int(end.code or 0)
    assert ended == code


def test_the_help_names_what_is_read() -> None:
    assert "ds_config.json" in CliRunner().invoke(cli.cli, ["check", "--help"]).output


def test_a_link_to_itself_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    with pytest.raises(InvalidInputError, match="cannot read"):
        judge_files([str(tmp_path / "loop.yaml")], Wishes(), BytesIO())


def test_pyyaml_is_of_the_base_install() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert any(each.startswith("pyyaml") for each in project["dependencies"])
