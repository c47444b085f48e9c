"""transformers' Trainer reads training_arguments.json, and trains like one process."""

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from launched import ACCUMULATED, TINY, Run, launch, start, write
from reference import TOLERANCE, distance, expected
from run_specs import refusal, with_layout
from transformers import HfArgumentParser, TrainingArguments

from planner.generate import RunSpec, generate

pytestmark = pytest.mark.usefixtures("preloaded")

PRECISIONS = ("fp32", "tf32", "fp16-mixed", "bf16-mixed", "bf16")
DEEPSPEED = with_layout(ACCUMULATED, framework="deepspeed", zero_stage=2, offload="optimizer")


def settings(spec: RunSpec) -> dict[str, Any]:
    files = generate(spec, ["trainer"])
    read: dict[str, Any] = json.loads(files["trainer/training_arguments.json"])
    return read


def parsed(settings: dict[str, Any], folder: Path) -> TrainingArguments:
    """Return what Trainer makes of its arguments on this machine; unknown ones are an error."""
    parser = HfArgumentParser(TrainingArguments)  # type: ignore[arg-type]
    (arguments,) = parser.parse_dict(settings | {"use_cpu": True, "output_dir": str(folder)})
    assert isinstance(arguments, TrainingArguments)
    return arguments


@pytest.mark.parametrize("precision", PRECISIONS)
def test_trainer_reads_every_layout_as_it_is_meant(precision: str, tmp_path: Path) -> None:
    for stage, recompute in product((0, 2, 3), ("none", "full")):
        spec = with_layout(ACCUMULATED, zero_stage=stage, precision=precision, recompute=recompute)
        arguments = parsed(settings(spec), tmp_path)
        assert arguments.per_device_train_batch_size == spec.micro_batch_size
        assert arguments.gradient_accumulation_steps == spec.gradient_accumulation_steps
        assert arguments.bf16 == (precision == "bf16-mixed")
        assert arguments.fp16 == (precision == "fp16-mixed")
        assert bool(arguments.fsdp) == (stage > 0)
        assert arguments.activation_checkpointing == (recompute == "full" and stage == 0)


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("offload", ["none", "optimizer+parameters"])
def test_every_fsdp_key_reaches_the_plugin(stage: int, offload: str, tmp_path: Path) -> None:
    """Trainer drops unknown keys in silence; those it knows it hands on."""
    for recompute in ("none", "full"):
        spec = with_layout(TINY, zero_stage=stage, offload=offload, recompute=recompute)
        ours = settings(spec)["fsdp_config"]
        plugin = parsed(settings(spec), tmp_path).fsdp_plugin_args
        assert plugin is not None
        for key, value in ours.items():
            name = "fsdp_version" if key == "version" else key
            assert plugin.get(name, False) == value, key
        assert ours["reshard_after_forward"] == (stage == 3)
        assert ours["activation_checkpointing"] == (recompute == "full")


def test_shards_are_reduced_after_every_micro_batch_as_planned(tmp_path: Path) -> None:
    """Trainer by itself holds whole gradients on every rank until the last one."""
    for stage, expected_value in ((0, None), (2, {"sync_each_batch": True})):
        arguments = parsed(settings(with_layout(ACCUMULATED, zero_stage=stage)), tmp_path)
        accelerated: Any = arguments.accelerator_config
        assert accelerated.gradient_accumulation_kwargs == expected_value


def test_deepspeeds_section_agrees_with_trainers_own_arguments(tmp_path: Path) -> None:
    """Trainer compares them, and refuses two values for one thing."""
    alone = with_layout(DEEPSPEED, gpus_per_node=1, global_batch_size=8, offload="none")
    for stage, precision in product(range(4), ("fp32", "bf16-mixed", "bf16")):
        spec = with_layout(alone, zero_stage=stage, precision=precision)
        read = parsed(settings(spec), tmp_path)
        assert read.hf_deepspeed_config.config["zero_optimization"]["stage"] == stage
        assert read.hf_deepspeed_config.mismatches == []
    wrong = settings(alone)
    wrong["deepspeed"] |= {"gradient_accumulation_steps": 3}
    (mismatch,) = parsed(wrong, tmp_path).hf_deepspeed_config.mismatches
    assert "gradient_accumulation_steps=3" in mismatch


def test_an_unknown_argument_would_be_seen(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="per_device_batch"):
        parsed(settings(TINY) | {"per_device_batch": 2}, tmp_path)


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ({"tensor_parallel_size": 2, "global_batch_size": 8}, "divides the data, not the model"),
        ({"zero_stage": 1}, "ZeRO-1 through DeepSpeed alone"),
        ({"recompute": "selective"}, "whole blocks or nothing"),
        ({"zero_stage": 3, "offload": "optimizer"}, "together with the optimizer's states"),
        ({"offload": "optimizer+parameters"}, "only FSDP"),
        ({"synchronize_every": 2}, "averages gradients every step"),
        (
            {"framework": "deepspeed", "offload": "optimizer"},
            "DeepSpeed offloads what ZeRO shards",
        ),
        (
            {
                "framework": "deepspeed",
                "pipeline_parallel_size": 2,
                "layers_per_stage": (1, 1),
                "global_batch_size": 8,
            },
            "divides the data, not the model",
        ),
    ],
)
def test_what_trainer_cannot_run_is_refused_with_the_reason(
    layout: dict[str, Any], reason: str
) -> None:
    assert re.search(reason, refusal(with_layout(TINY, **layout), "trainer"))


def assert_parity(run: Run) -> None:
    reference = expected("gpt2")
    assert {record["world_size"] for record in run.finish().log} == {2}
    assert run.losses == pytest.approx(reference.losses, abs=TOLERANCE, rel=0)
    # With DeepSpeed, Trainer saves tied weights under both names.
    assert run.weights.keys() - {"lm_head.weight"} == reference.weights.keys()
    assert distance(reference.weights, run.weights) <= TOLERANCE


def test_ddp_trains_like_one_process_and_resumes_exactly(tmp_path: Path) -> None:
    arguments = ("--no-dropout", "--save-every", "1")
    whole = launch(tmp_path / "whole", ACCUMULATED, *arguments, target="trainer")
    assert_parity(whole)
    assert "find_unused_parameters" not in whole.printed
    config = json.loads((whole.folder / "model" / "config.json").read_text())
    assert config["use_cache"]  # as the model had it: training without a cache leaves it alone
    checkpoint = whole.folder / "trainer" / "checkpoints" / "checkpoint-1"
    resume = ("--no-dropout", "--resume", str(checkpoint))
    part = launch(tmp_path / "part", ACCUMULATED, *resume, target="trainer").finish()
    assert [record["step"] for record in part.log] == [2, 3]
    assert part.losses == whole.losses[1:]


def on_gloo(folder: Path, spec: RunSpec, *arguments: str, **environment: str) -> Run:
    """Start the plan where Trainer uses FSDP or DeepSpeed without GPUs."""
    command = ("bash", "trainer/launch.sh", "--no-dropout", *arguments)
    gloo_only = str(Path(__file__).parent / "gloo_only")
    variables = {"PYTHONPATH": gloo_only, "ACCELERATE_USE_CPU": "false", **environment}
    return start(write(folder, spec, "trainer"), *command, **variables)


def test_deepspeed_behind_trainer_trains_like_one_process(tmp_path: Path) -> None:
    """The script ends where the model is not in DeepSpeed's engine: this run has been in one."""
    assert_parity(on_gloo(tmp_path, DEEPSPEED))


@pytest.mark.parametrize("stage", [2, 3])
def test_fsdp_behind_trainer_trains_like_one_process_and_resumes_exactly(
    stage: int, tmp_path: Path
) -> None:
    """The script ends where the model is no FSDPModule: these runs have trained one."""
    spec = with_layout(ACCUMULATED, zero_stage=stage, recompute="full" if stage == 3 else "none")
    engine = {"ACCELERATE_ENGINE": "fsdp"}
    whole = on_gloo(tmp_path / "whole", spec, "--save-every", "1", **engine)
    assert_parity(whole)
    checkpoint = whole.folder / "trainer" / "checkpoints" / "checkpoint-1"
    shards = {path.name for path in (checkpoint / "optimizer_0").glob("*.distcp")}
    assert shards == {"__0_0.distcp", "__1_0.distcp"}
    part = on_gloo(tmp_path / "part", spec, "--resume", str(checkpoint), **engine).finish()
    assert part.losses == whole.losses[1:]
    assert distance(part.weights, whole.weights) == 0


def test_fsdp_behind_trainer_may_reduce_once_a_step(tmp_path: Path) -> None:
    """Each of two runs counts its reduce-scatters: of 4 micro-batches, or of the last one."""
    spec = with_layout(ACCUMULATED, zero_stage=3)
    counted = (tmp_path / "each", ()), (tmp_path / "once", ("--no-sync",))
    exchanges = []
    for folder, flags in counted:
        run = on_gloo(folder, spec, *flags, "--profile", "trace", ACCELERATE_ENGINE="fsdp")
        assert_parity(run)
        (trace,) = (run.folder / "trainer" / "trace").glob("rank-0*.json")
        exchanges.append(trace.read_text().count('"name": "c10d::_reduce_scatter_base_"'))
    assert exchanges[0] == 4 * exchanges[1] > 0


def test_a_plan_that_trainer_would_run_as_another_one_ends_the_job(tmp_path: Path) -> None:
    """Without GPUs Trainer takes DDP for FSDP, and says nothing."""
    folder = write(tmp_path, with_layout(TINY, zero_stage=3), "trainer")
    script = folder / "trainer" / "start.py"
    text = script.read_text()
    assert "time.sleep(60)" in text  # the launcher, which ends it, gives Trainer half a minute
    script.write_text(text.replace("time.sleep(60)", "time.sleep(1)"))
    run = start(folder, "bash", "trainer/launch.sh")
    said = "made no FSDPModule of the model: it shards on GPUs alone, torchrun's script on CPUs too"
    assert said in run.fail()
