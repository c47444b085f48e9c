"""Every figure that a plan rests on has a source of its own."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from planner.catalog import records
from planner.core.units import GIB, GIGA, TERA

DATA = Path(__file__).parents[2] / "data"
OF_A_PLAN = re.compile(
    r"(memory|usable)_[gm]ib|hbm_gb_per_s|peak_tflops\..*|nvlink_.*|fabric_gb_per_s|pcie_.*"
)
"""Memory, bandwidth, dense peaks, NVLink, fabric and slot. The link to a Grace CPU is an assumption, and says so."""
MOST_UNSOURCED = 87
COMMON = {
    *("rtx-2080ti", "rtx-3060", "rtx-3070", "rtx-3080", "rtx-3090", "rtx-3090ti", "titan-rtx"),
    *("rtx-4060ti", "rtx-4070", "rtx-4070ti", "rtx-4080", "rtx-4090", "rtx-4090d", "gtx-1080ti"),
    *("rtx-5060ti", "rtx-5070", "rtx-5070ti", "rtx-5080", "rtx-5090", "rtx-pro-6000"),
    *("a10", "a30", "a40", "a4000", "a5000", "a6000", "l40", "p40", "p100-pcie-16gb"),
    *("rtx-6000-ada", "h100-nvl", "mi250x", "mi300x", "mi325x", "mi355x"),
}


def _raw(folder: str, name: str) -> dict[str, Any]:
    return tomllib.loads((DATA / folder / f"{name.lower()}.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "name", sorted(COMMON | {records.instance(name).gpu for name in records.instance_names()})
)
def test_what_a_plan_of_a_common_gpu_rests_on_has_a_source(name: str) -> None:
    unsourced = _raw("gpus", name)["unsourced"]
    assert [key for key in unsourced if OF_A_PLAN.fullmatch(key)] == []


def test_no_more_figures_are_without_a_source_than_there_were() -> None:
    counted = {name: len(_raw("gpus", name)["unsourced"]) for name in records.gpu_names()}
    assert sum(counted.values()) <= MOST_UNSOURCED


@pytest.mark.parametrize("name", records.gpu_names())
def test_a_record_with_sources_does_not_call_itself_general_knowledge(name: str) -> None:
    assert "general knowledge" not in _raw("gpus", name)["source"]


@pytest.mark.parametrize(("name", "bf16"), [("mi250", 181.05), ("mi250x", 191.5)])
def test_a_package_of_two_dies_is_two_devices(name: str, bf16: float) -> None:
    gpu = records.gpu(name)
    assert gpu.memory_bytes == 64 * GIB
    assert gpu.hbm_bytes_per_second == 1638 * GIGA
    assert gpu.peak_flops["bf16"] == pytest.approx(bf16 * TERA)


@pytest.mark.parametrize(
    ("name", "key", "figure"),
    [
        ("p40", "hbm_gb_per_s", 346),
        ("b300-sxm", "memory_mib", 275_040),
        ("b300-sxm", "tdp_watts", 1100),
        ("gb300", "memory_mib", 284_208),
        ("rtx-4090d", "tdp_watts", 425),
        ("a100-sxm-80gb", "hbm_gb_per_s", 2039),
    ],
)
def test_figures_that_stood_wrong_are_right(name: str, key: str, figure: float) -> None:
    assert _raw("gpus", name)[key] == figure
