"""Losses that never hold all logits, beside compiled blocks: their scripts train like one process.

Liger's kernels run in Triton's interpreter, without a GPU: of what is compiled they compute the loss alone.
"""

from dataclasses import replace
from pathlib import Path

import test_lora
import yaml
from launched import ACCUMULATED, LLAMA, launch_several
from reference import assert_parity, expected
from run_specs import with_layout

from planner.generate import RunSpec, generate

pytestmark = test_lora.pytestmark[
    1:
]  # not preloaded: what interprets Triton is there as it is imported

INTERPRETED = {"TRITON_INTERPRET": "1"}
FUSED = replace(ACCUMULATED, model_config=LLAMA, compile=True, loss="fused")


def in_chunks(spec: RunSpec) -> RunSpec:
    return replace(spec, loss="chunked", loss_chunk_tokens=7)


def test_torchrun_trains_with_a_lighter_loss_like_one_process(tmp_path: Path) -> None:
    plans = {"replicas": FUSED, "shards": with_layout(FUSED, zero_stage=3, recompute="full")}
    beside = {"adapters": in_chunks(test_lora.plan(zero_stage=3))}
    runs = launch_several(tmp_path, plans | beside, "--no-dropout", **INTERPRETED)
    for name in plans:
        assert_parity(runs[name], expected("llama"))
    test_lora.assert_parity(runs["adapters"], test_lora.expected("llama", 32))


def test_ligers_other_kernels_stay_away_from_what_is_compiled_and_from_experts() -> None:
    def kernels(spec: RunSpec) -> dict[str, bool]:
        arguments = yaml.safe_load(generate(spec, ["trainer"])["trainer/sft.yaml"])
        return dict(arguments["liger_kernel_config"])

    whole = kernels(replace(FUSED, compile=False))
    assert whole == {"fused_linear_cross_entropy": False, "cross_entropy": False}
    experts = kernels(replace(FUSED, compile=False, has_experts=True))
    assert experts == whole | {"swiglu": False}
    assert not any(on for name, on in kernels(FUSED).items() if "entropy" not in name)


def test_ligers_loss_is_left_out_on_a_cpu_without_the_interpreter(tmp_path: Path) -> None:
    shards = with_layout(FUSED, zero_stage=3, recompute="full")
    runs = launch_several(tmp_path, {"shards": shards}, "--no-dropout")
    assert_parity(runs["shards"], expected("llama"))
