from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from planner.catalog import records
from planner.catalog.tables import InvalidRecordError, build, in_base_units
from planner.core.units import GIB, GIGA, MIB, MICRO, TERA
from planner.domain.cluster import Gpu, Instance
from planner.domain.framework import Framework
from planner.domain.kept import Numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    latency_seconds: float
    numerics: Numerics = Numerics.FP32


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    name: str
    inner: Inner
    peak_flops: Mapping[str, float] = field(default_factory=dict)
    pair: tuple[int, Literal["ring", "gather"]] = (1, "ring")
    many: tuple[str, ...] = ()
    by_ranks: Mapping[int, str] = field(default_factory=dict)
    outer_fraction: float | None = None


TABLE: dict[str, Any] = {"name": "one", "inner": {"latency_us": 3}}


@pytest.mark.parametrize(
    ("key", "name", "factor"),
    [
        ("context_mib", "context_bytes", MIB),
        ("memory_gib", "memory_bytes", GIB),
        ("gb_per_s", "bytes_per_second", GIGA),
        ("nvlink_gb_per_s_per_link", "nvlink_bytes_per_second_per_link", GIGA),
        ("network_gbit_per_s", "network_bytes_per_second", GIGA / 8),
        ("peak_tflops", "peak_flops", TERA),
        ("latency_us_per_rank", "latency_seconds_per_rank", MICRO),
        ("nccl_s_per_gpu", "nccl_seconds_per_gpu", 1),
        ("parameters_per_s", "parameters_per_second", 1),
        ("usd_per_hour", "usd_per_hour", 1),
    ],
)
def test_a_unit_in_a_key_becomes_the_base_unit(key: str, name: str, factor: float) -> None:
    assert in_base_units(key) == (name, factor)


def test_a_table_becomes_its_dataclass() -> None:
    table = TABLE | {
        "inner": {"latency_us": 3, "numerics": "half"},
        "peak_tflops": {"bf16": 312},
        "pair": [2, "gather"],
        "many": ["a", "b"],
        "by_ranks": {"2": "pair"},
        "outer_fraction": 0.5,
    }
    assert build(Outer, table, "record") == Outer(
        name="one",
        inner=Inner(latency_seconds=3 * MICRO, numerics=Numerics.HALF),
        peak_flops={"bf16": 312 * TERA},
        pair=(2, "gather"),
        many=("a", "b"),
        by_ranks={2: "pair"},
        outer_fraction=0.5,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inner": {"latency_us": 3, "latencies": 4}}, r"record\.inner\.latencies: unknown key"),
        ({"nme": "x"}, r"record\.nme: unknown key; did you mean name"),
        ({"inner": {}}, r"record\.inner\.latency_seconds: missing"),
        (
            {"inner": {"latency_seconds": 3}},
            r"latency_seconds: unknown key; did you mean latency_us\?",
        ),
        ({"peak_flops": {"bf16": 1}}, r"peak_flops: unknown key; did you mean peak_tflops\?"),
        ({"inner": 3}, r"record\.inner: 3 is not of type Inner"),
        ({"inner": {"latency_us": "3"}}, r"record\.inner\.latency_us: '3' is not of type float"),
        ({"inner": {"latency_us": True}}, r"record\.inner\.latency_us: True is not of type float"),
        ({"inner": {"latency_us": 3, "numerics": "int4"}}, r"record\.inner\.numerics: 'int4'"),
        ({"pair": [1, "star"]}, r"record\.pair\[1\]: 'star'"),
        ({"pair": [1]}, r"record\.pair: \[1\]"),
        ({"many": ["a", 2]}, r"record\.many\[1\]: 2 is not of type str"),
        ({"by_ranks": {"two": "pair"}}, r"record\.by_ranks\.two: unknown key"),
        ({"peak_tflops": {"bf16": None}}, r"record\.peak_tflops\.bf16: None"),
    ],
)
def test_what_does_not_agree_is_refused_with_its_path(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRecordError, match=message):
        build(Outer, TABLE | change, "record")


def test_a_key_twice_in_two_units_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match=r"record\.latency_seconds: given twice"):
        build(Inner, {"latency_us": 3, "latency_s": 4}, "record")


@pytest.mark.parametrize("name", records.framework_names())
def test_a_framework_refuses_a_key_that_it_does_not_know_and_misses_none(name: str) -> None:
    table = records.framework_record(name)
    for section in ("sharding", "host_memory", "start", "uncertainty", "capabilities"):
        wrong = table | {section: table[section] | {"pauses": 1}}
        with pytest.raises(InvalidRecordError, match=rf"torch\.{section}\.pauses: unknown key"):
            build(Framework, wrong, "torch")
        lacking = {key: value for key, value in table[section].items() if key != "source"}
        with pytest.raises(InvalidRecordError, match=rf"torch\.{section}\.source: missing"):
            build(Framework, table | {section: lacking}, "torch")


@pytest.mark.parametrize(
    ("kind", "folder", "name"),
    [
        (Gpu, "gpus", "h100-pcie-80gb"),
        (records.LinkRecord, "links", "nvlink-1"),
        (Instance, "instances", "p3.2xlarge"),
    ],
)
def test_a_misspelt_key_of_a_record_is_refused(kind: type, folder: str, name: str) -> None:
    with pytest.raises(InvalidRecordError, match=rf"{name}\.nots: unknown key"):
        build(kind, records.facts(folder, name) | {"nots": "x"}, name)


def test_every_record_loads() -> None:
    assert all(records.gpu(name).name == name for name in records.gpu_names())
    assert all(records.link(name).name == name for name in records.link_names())
    assert all(records.instance(name).source for name in records.instance_names())
    assert all(records.framework(name).name == name for name in records.framework_names())


@pytest.mark.parametrize("key", ["hbm_gb_s", "hbm_bytes_per_second"])
def test_the_key_that_is_named_is_one_of_files(key: str) -> None:
    with pytest.raises(InvalidRecordError, match=rf"{key}: unknown key; did you mean hbm_gb_per_s"):
        build(Gpu, {"name": "h100", key: 3350}, "gpus/h100")
