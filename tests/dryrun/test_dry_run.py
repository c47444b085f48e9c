"""A written script under tensors without storage: its peak is the plan's, and what is wrong is said."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import cli
from planner.core.errors import InvalidInputError, UnsupportedError
from planner.dryrun.start import DryRun, Planned, dry_run, read_plan
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
PLANNED = Planned(
    summary="gpt2, zero-3",
    world_size=4,
    gpus_per_node=2,
    peak_bytes=(1000 * 2**20,),
    phase="optimizer step",
    left_out=(),
)


def bundle(folder: Path, *flags: str) -> Path:
    config, out = folder / "config.json", folder / "plan"
    config.write_text(json.dumps(SMALL))
    words = ["suggest", str(config), "--gpu", "a100", "--seq-len", "512", *flags]
    result = CliRunner().invoke(cli, [*words, "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out


def test_a_sharded_script_peaks_where_the_ledger_says(tmp_path: Path) -> None:
    flags = ("--gpus", "2", "--strategy", "zero-3", "--micro-batch-size", "4")
    found = dry_run(bundle(tmp_path, *flags, "--global-batch-size", "16"))
    assert abs(found.difference) < 0.002
    assert found.peaks["forward"] < found.peak_bytes
    assert found.micro_batches == 2


def test_a_folder_without_a_plan_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"plan\.json"):
        read_plan(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"job": 1}', "[" * 100_000])
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InvalidInputError, match="is no plan"):
        read_plan(tmp_path)


def test_a_plan_without_a_script_is_refused(tmp_path: Path) -> None:
    out = bundle(tmp_path, "--gpus", "2")
    (out / "torchrun/train.py").unlink()
    with pytest.raises(InvalidInputError, match=r"no torchrun/train\.py"):
        dry_run(out)


def test_a_pipeline_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="ask each other for the shapes"):
        dry_run(bundle(tmp_path, "--gpus", "2", "--pp", "2"))


@pytest.mark.parametrize(
    ("measured", "word"),
    [(1000, "the same"), (1005, "0.50 % less"), (1015, "1.48 % less"), (985, "1.52 % more")],
)
def test_more_than_a_hundredth_is_a_finding(measured: int, word: str) -> None:
    found = DryRun(
        planned=PLANNED,
        rank=3,
        stage=0,
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
