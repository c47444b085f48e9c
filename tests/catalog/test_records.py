from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog import records
from planner.catalog.tables import InvalidRecordError
from planner.core.errors import PlannerError, UnknownNameError, UnsupportedError
from planner.core.units import GIB, GIGA, MIB, MICRO, TERA
from planner.domain.kept import Numerics


@pytest.mark.parametrize(
    "name", ["h100-sxm-80gb", "h100", "H100-SXM5", "NVIDIA H100 80GB HBM3", " h100 80gb hbm3 "]
)
def test_a_gpu_goes_by_many_names(name: str) -> None:
    assert records.gpu(name) is records.gpu("h100-sxm-80gb")


def test_a_gpu_is_in_base_units() -> None:
    gpu = records.gpu("h100")
    assert gpu.memory_bytes == 80 * GIB
    assert gpu.peak_flops["bf16"] == 989 * TERA
    assert gpu.hbm_bytes_per_second == 3350 * GIGA
    assert gpu.nvlink_bytes_per_second_per_link == 25 * GIGA
    assert (gpu.nvlink_links, gpu.nvlink_fabric, gpu.has_p2p) == (18, "nvswitch", True)


def test_what_a_gpu_does_not_have_is_zero() -> None:
    gpu = records.gpu("rtx-4090")
    assert (gpu.nvlink_generation, gpu.nvlink_links, gpu.nvlink_fabric) == (0, 0, "")
    assert gpu.fabric_bytes_per_second == 0


def test_an_unknown_gpu_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown GPU 'h1000'") as caught:
        records.gpu("h1000")
    assert caught.value.field == "cluster.gpu"
    assert "h100" in caught.value.hint


def test_a_gpu_like_no_other_points_to_the_list() -> None:
    with pytest.raises(UnknownNameError) as caught:
        records.gpu("\0" * 10_000)
    assert caught.value.hint == "`planner gpus` lists all of them"
    assert len(caught.value.message) < 300


def test_a_measured_gpu_has_its_own_gemm_curve() -> None:
    curve = records.gpu("h100").gemm
    assert curve.overhead_seconds == pytest.approx(3.66 * MICRO)
    assert (curve.peak_fraction, curve.spread) == (0.812, 0.071)
    assert curve.source.endswith("h100-sxm-80gb")


def test_a_relative_of_a_measured_gpu_borrows_its_curve() -> None:
    own, borrowed = records.gpu("h100").gemm, records.gpu("gh200").gemm
    assert borrowed == replace(own, spread=0.10)
    assert own.spread < borrowed.spread < records.gpu("mi250x").gemm.spread


def test_any_other_gpu_has_the_default_curve() -> None:
    assert records.gpu("mi250x").gemm.source.startswith("assumed")


def test_a_link_is_in_base_units_and_zero_where_unknown() -> None:
    link = records.link("nvswitch-h100")
    assert (link.kind, link.scope) == ("nvlink", "gpu")
    assert link.bytes_per_second == 450 * GIGA
    assert link.all_reduce_bus_bytes_per_second == pytest.approx(367.5 * GIGA)
    assert (link.achievable_bytes_per_second, link.latency_seconds) == (0, 0)


@pytest.mark.parametrize("name", ["../gpus/h100-sxm-80gb", "", "nvlink-9", "\0"])
def test_an_unknown_link_says_which_input_named_it(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        records.link(name, "cluster.inter_node")
    assert caught.value.field == "cluster.inter_node"
    assert "`planner links`" in caught.value.hint


@pytest.mark.parametrize("name", ["gpt2", "GPT2", "openai-community/gpt2", "OpenAI-Community/GPT2"])
def test_a_model_goes_by_its_hub_id_or_a_short_one(name: str) -> None:
    record = records.model(name)
    assert record is records.model("gpt2")
    assert record
    assert record.id == "openai-community/gpt2"
    assert record.config["n_embd"] == 768


@pytest.mark.parametrize("name", ["", "gpt", "openai-community--gpt2", "aliases", "../gpt2", "\0"])
def test_there_is_no_model_of_another_name(name: str) -> None:
    assert records.model(name) is None


def test_a_framework_is_in_base_units() -> None:
    torch = records.framework("torch")
    assert torch.device.context_bytes == 520 * MIB
    assert torch.buckets.bytes == 25 * MIB
    assert torch.host.operation_seconds == pytest.approx(45 * MICRO)
    mixed = torch.precisions["bf16-mixed"]
    assert (mixed.parameter_bytes, mixed.gather_bytes) == (4, 2)
    assert (mixed.replicated_numerics, mixed.sharded_numerics) == (
        Numerics.AUTOCAST,
        Numerics.HALF,
    )
    assert torch.start.load_bytes_per_second == GIGA
    assert torch.device.source


def test_a_framework_may_be_another_one_under_its_own_name() -> None:
    torch, accelerate = records.framework("torch"), records.framework("accelerate")
    assert accelerate.name == "accelerate"
    assert accelerate.precisions == torch.precisions


@pytest.mark.parametrize("name", ["jax", "Torch", "../gpus/t4", "x" * 10_000])
def test_an_unknown_framework_lists_the_known_ones(name: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        records.framework(name)
    assert caught.value.field == "recipe.framework"
    assert "accelerate, composer, deepspeed" in caught.value.hint
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("name", ["p4d.24xlarge", "P4D.24XLARGE", " p4d.24xlarge "])
def test_an_instance_is_in_base_units(name: str) -> None:
    instance = records.instance(name)
    assert (instance.name, instance.cloud) == ("p4d.24xlarge", "AWS")
    assert (instance.gpu, instance.gpus_per_node) == ("a100-sxm-40gb", 8)
    assert instance.network_bytes_per_second == 50 * GIGA
    assert instance.host_memory_bytes == 1152 * GIB
    assert (instance.usd_per_hour, instance.price_date) == (21.9576, "2026-01-21")
    assert "us-east-1" in instance.price_source


def test_what_nobody_says_of_an_instance_is_zero() -> None:
    instance = records.instance("a2-highgpu-1g")
    assert instance.usd_per_hour == instance.host_memory_bytes == instance.vcpus == 0
    assert instance.network_bytes_per_second == 0
    assert (instance.price_source, instance.price_date) == ("", "")


def test_instances_are_listed_by_cloud_family_and_size() -> None:
    names = records.instance_names()
    first, second = names.index("g5.xlarge"), names.index("g5.2xlarge")
    assert first + 1 == second
    assert names.index("p5.48xlarge") < names.index("Standard_ND96isr_H100_v5")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("p4d.24xlrge", "did you mean p4d.24xlarge"),
        ("standard_nd96isr_h10", "Standard_ND96isr_H100_v5"),
        ("g5", "there are g5.12xlarge, g5.16xlarge"),
        ("p4", "there are p4d.24xlarge, p4de.24xlarge"),
        ("../gpus/\0", "`planner instances` lists all of them"),
        ("", "`planner instances` lists all of them"),
    ],
)
def test_an_unknown_instance_names_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        records.instance(name)
    assert caught.value.field == "cluster.instance"
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("p5", "p5.48xlarge"),
        ("P5.4xlarge", "p5.4xlarge"),
        ("P5e", "p5e.48xlarge"),
        ("ml.p4d.24xlarge", "p4d.24xlarge"),
        ("p6-b200", "p6-b200.48xlarge"),
        ("a3-highgpu", "a3-highgpu-8g"),
        ("gpu_8x_h100", "gpu_8x_h100_sxm5"),
        ("bm.gpu.h100", "BM.GPU.H100.8"),
        ("standard_nd96isr_h100", "Standard_ND96isr_H100_v5"),
    ],
)
def test_an_instance_is_known_by_its_family_where_that_has_one_size_or_is_called_so(
    name: str, whole: str
) -> None:
    assert records.instance(name).name == whole


@pytest.mark.parametrize(
    "look_up", [records.gpu, records.link, records.model, records.framework, records.instance]
)
@settings(deadline=None)
@given(name=st.text(max_size=300))
def test_any_name_is_found_or_refused(look_up: Callable[[str], object], name: str) -> None:
    try:
        look_up(name)
    except PlannerError as error:
        refusal = error
    else:
        return
    assert refusal.hint


def test_a_vendor_without_a_record_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(InvalidRecordError, match="'acme'; data/vendors has amd, intel, nvidia"):
        records.vendor("acme")
