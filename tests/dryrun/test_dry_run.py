"""A written script under tensors without storage: its peak is the plan's, and what is wrong is said."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from needed import need, need_module

from planner.cli import cli
from planner.core.errors import InvalidInputError, UnsupportedError
from planner.dryrun.start import DryRun, dry_run
from planner.dryrun.text import dry_run_json, dry_run_text

SMALL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 4096,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 1024,
}
PLANNED: Any = SimpleNamespace(
    ranks=4,
    stages=1,
    stage_peak_bytes=(1000.0 * 2**20,),
    data={
        "job": {"model": {"name": "gpt2"}},
        "chosen": {"family": "zero-3", "memory": {"phase": "optimizer step"}},
    },
)


def bundle(folder: Path, *flags: str, layers: int = 2, vocabulary: int = 4096) -> Path:
    config, out = folder / "config.json", folder / "plan"
    config.write_text(json.dumps(SMALL | {"num_hidden_layers": layers, "vocab_size": vocabulary}))
    stack = ["--framework", "torch", "--loss", "standard", "--no-compile"]
    words = ["suggest", str(config), "--gpu", "a100", "--seq-len", "512", *stack, *flags]
    result = CliRunner().invoke(cli, [*words, "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out


def followed(folder: Path, stage: int | None = None) -> DryRun:
    """Return the dry run of a folder, where there is what it takes."""
    need_module("torch", get="pip install 'trainplan[torch]'")
    need("g++", get="apt-get install g++")
    return dry_run(folder, stage)


def test_a_sharded_script_peaks_where_the_ledger_says(tmp_path: Path) -> None:
    flags = ("--gpus", "2", "--strategy", "zero-3", "--micro-batch-size", "4")
    found = followed(bundle(tmp_path, *flags, "--global-batch-size", "16"))
    assert abs(found.difference) < 0.002
    assert found.peaks["forward"] < found.peak_bytes
    assert found.micro_batches == 2


@pytest.mark.parametrize(("replicas", "shards"), [(2, 2), (4, 1)])
def test_replicas_of_shards_peak_where_the_ledger_says(
    tmp_path: Path, replicas: int, shards: int
) -> None:
    flags = ["--gpus", "4", "--strategy", "zero-3", "--micro-batch-size", "4"]
    flags += ["--pin", f"dp={replicas}x{shards}", "--global-batch-size", "16"]
    found = followed(bundle(tmp_path, *flags, layers=8))
    assert abs(found.difference) < 0.01


def test_a_folder_without_a_plan_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="No such file"):
        dry_run(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"job": 1}', "[" * 100_000])
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InvalidInputError, match=r"holds no plan|cannot read the plan"):
        dry_run(tmp_path)


def test_a_plan_without_a_script_is_refused(tmp_path: Path) -> None:
    out = bundle(tmp_path, "--gpus", "2")
    (out / "torchrun/train.py").unlink()
    with pytest.raises(InvalidInputError, match=r"no torchrun/train\.py"):
        dry_run(out)


def test_a_divided_script_peaks_where_the_ledger_says(tmp_path: Path) -> None:
    flags = ("--gpus", "4", "--strategy", "tp+zero-3", "--tp", "2", "--micro-batch-size", "4")
    found = followed(bundle(tmp_path, *flags, "--global-batch-size", "16"))
    assert abs(found.difference) < 0.01


def test_a_stage_of_a_pipeline_peaks_where_the_ledger_says(tmp_path: Path) -> None:
    flags = ["--gpus", "2", "--pp", "2", "--schedule", "1f1b"]
    flags += ["--micro-batch-size", "4", "--global-batch-size", "16"]
    found = followed(bundle(tmp_path, *flags), stage=1)
    assert (found.rank, found.stage, found.micro_batches) == (1, 1, 4)
    assert abs(found.difference) < 0.01


@pytest.mark.parametrize(
    ("schedule", "stage"), [("zb-h1", 1), ("zbv", 0), ("zbv", 1), ("gpipe", 1)]
)
def test_a_stage_that_puts_off_or_waits_peaks_where_the_ledger_says(
    tmp_path: Path, schedule: str, stage: int
) -> None:
    flags = ["--gpus", "2", "--pp", "2", "--schedule", schedule]
    flags += ["--micro-batch-size", "4", "--global-batch-size", "16"]
    found = followed(bundle(tmp_path, *flags, layers=8), stage=stage)
    assert abs(found.difference) < 0.01
    assert found.peaks["backward"] == found.peak_bytes


@pytest.mark.parametrize(("schedule", "stage"), [("interleaved-1f1b", 1), ("zbv", 0)])
def test_the_head_of_the_last_chunk_waits_for_nothing(
    tmp_path: Path, schedule: str, stage: int
) -> None:
    flags = ["--gpus", "2", "--pp", "2", "--schedule", schedule, "--virtual-stages", "2"]
    flags += ["--micro-batch-size", "2", "--global-batch-size", "16"]
    found = followed(bundle(tmp_path, *flags, layers=8, vocabulary=2**15), stage=stage)
    assert abs(found.difference) < 0.005


def test_adapters_peak_where_the_ledger_says(tmp_path: Path) -> None:
    flags = ["--gpus", "2", "--strategy", "ddp", "--method", "lora", "--micro-batch-size", "4"]
    found = followed(bundle(tmp_path, *flags, "--global-batch-size", "16", layers=8))
    assert abs(found.difference) < 0.01


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_divided_sequence_peaks_where_the_ledger_says(tmp_path: Path, recompute: str) -> None:
    flags = ["--gpus", "2", "--cp", "2", "--micro-batch-size", "4", "--global-batch-size", "16"]
    found = followed(bundle(tmp_path, *flags, "--recompute", recompute, layers=4))
    assert abs(found.difference) < 0.01


def test_a_first_stage_of_divided_matrices_peaks_where_the_ledger_says(tmp_path: Path) -> None:
    flags = ["--gpus", "8", "--dp", "2", "--tp", "2", "--pp", "2", "--schedule", "1f1b"]
    flags += ["--micro-batch-size", "2", "--global-batch-size", "16"]
    found = followed(bundle(tmp_path, *flags, layers=8), stage=0)
    assert abs(found.difference) < 0.01


def test_sums_of_replicas_are_held_while_gradients_are_added(tmp_path: Path) -> None:
    """As the gradients of embeddings and head are summed, which in a small batch is the peak."""
    flags = ["--gpus", "4", "--strategy", "hsdp", "--seq-len", "64", "--micro-batch-size", "1"]
    found = followed(bundle(tmp_path, *flags, "--global-batch-size", "8"))
    assert abs(found.difference) < 0.01
    assert found.planned_phase == "reduction of the outer gradients"


def test_without_a_compiler_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_module("torch", get="pip install 'trainplan[torch]'")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(UnsupportedError, match=r"no g\+\+") as caught:
        dry_run(bundle(tmp_path, "--gpus", "2"))
    assert caught.value.hint.startswith("install g++")


def test_a_stage_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="1 pipeline stages"):
        dry_run(bundle(tmp_path, "--gpus", "2"), stage=1)


@pytest.mark.parametrize(
    ("measured", "word"),
    [(1000, "the same"), (1005, "0.50 % less"), (1015, "1.48 % less"), (985, "1.52 % more")],
)
def test_more_than_a_hundredth_is_a_finding(measured: int, word: str) -> None:
    found = DryRun(
        planned=PLANNED,
        rank=3,
        stage=0,
        left_out=(),
        peaks={"forward": 2**20, "backward": 2**20, "optimizer": measured * 2**20},
        micro_batches=2,
        seconds=8.0,
        torch="2.13.0",
    )
    is_finding = abs(1000 / measured - 1) > 0.01
    assert found.is_finding == is_finding
    assert word in dry_run_text(found)
    assert ("Please report it" in dry_run_text(found)) == is_finding
    assert dry_run_json(found)["is_finding"] == is_finding
