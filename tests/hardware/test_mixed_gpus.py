import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog import records
from planner.core.errors import InvalidInputError, PlannerError
from planner.core.units import GIB, TERA
from planner.hardware.mixed_gpus import governing_gpu, is_list, read_gpu_counts, waste


def test_a_list_has_counts_or_several_names() -> None:
    assert is_list("3090:2")
    assert is_list("3090,3060")
    assert not is_list("NVIDIA H100 80GB HBM3")


def test_names_are_looked_up_and_equal_ones_added() -> None:
    parts = read_gpu_counts("3090:2, RTX-3060 , rtx3090")
    assert [(part.gpu.name, part.count) for part in parts] == [("rtx-3090", 3), ("rtx-3060", 1)]


def test_one_model_governs_itself() -> None:
    assert read_gpu_counts("3090x2") == read_gpu_counts("2x3090") == read_gpu_counts("3090:2")
    assert governing_gpu(read_gpu_counts("3090:2,3090:1")) is records.gpu("rtx-3090")


def test_the_smallest_and_slowest_govern() -> None:
    gpu = governing_gpu(read_gpu_counts("4080:1,3090:2"))
    assert gpu.name == "mixed: 1 x rtx-4080 + 2 x rtx-3090"
    assert gpu.memory_bytes == 16 * GIB
    assert gpu.peak_flops == {
        "fp32": 35.58 * TERA,
        "tf32": 35.6 * TERA,
        "fp16": 71 * TERA,
        "bf16": 71 * TERA,
    }
    assert gpu.hbm_bytes_per_second == 716.8e9
    assert gpu.compute_capability == "8.6"
    assert gpu.gemm == records.gpu("rtx-3090").gemm
    assert (gpu.nvml_names, gpu.aliases) == ((), ())


def test_a_dtype_counts_only_where_all_have_it() -> None:
    assert set(governing_gpu(read_gpu_counts("3090,2080ti")).peak_flops) == {"fp32", "fp16"}


def test_the_slowest_slot_governs_whole() -> None:
    gpu = governing_gpu(read_gpu_counts("5060ti,t4"))
    assert (gpu.pcie_generation, gpu.pcie_lanes) == (3, 16)
    narrow = governing_gpu(read_gpu_counts("4060ti,l40s"))
    assert (narrow.pcie_generation, narrow.pcie_lanes) == (4, 8)


def test_cards_of_two_models_reach_each_other_through_host_memory() -> None:
    gpu = governing_gpu(read_gpu_counts("a5000,a6000"))
    assert not gpu.has_p2p
    assert (gpu.nvlink_fabric, gpu.nvlink_links, gpu.nvlink_bytes_per_second_per_link) == ("", 0, 0)


def test_a_common_switch_stays() -> None:
    gpu = governing_gpu(read_gpu_counts("h100:4,h800:4"))
    assert (gpu.nvlink_fabric, gpu.nvlink_generation, gpu.nvlink_links) == ("nvswitch", 4, 8)
    assert governing_gpu(read_gpu_counts("h100:4,a100:4")).nvlink_fabric == ""


def test_the_waste_is_said_with_the_offer_to_drop_the_least_card() -> None:
    text = waste(read_gpu_counts("3090:2,3060:1"))
    assert "12.0 GiB of the 24.0 GiB and 64 % of the bf16 speed of each rtx-3090" in text
    assert "without the rtx-3060: 2 x rtx-3090 with 24.0 GiB each and 142 TFLOP/s together" in text
    assert "against 12.0 GiB each and 76.5 TFLOP/s now (--gpu rtx-3090:2)" in text


def test_a_card_that_is_only_slower_is_worth_keeping() -> None:
    text = waste(read_gpu_counts("4090:1,3090:2"))
    assert text.endswith("which leaves unused 57 % of the bf16 speed of the rtx-4090")


def test_cards_that_differ_in_links_alone_waste_nothing() -> None:
    assert waste(read_gpu_counts("h100,h800")) == (
        "with all of them every rank is planned as the smallest and slowest card"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3090:x", "cannot read '3090:x'"),
        (",", "cannot read ''"),
        ("3090:2:2", "cannot read"),
        (":3", "cannot read ':3'"),
        ("3090:0", "1 to 1,024 GPUs"),
        ("3090:1000,3060:25", "1 to 1,024 GPUs"),
        ("3090:12345", "cannot read"),
        ("3090,mi300x", "GPUs of amd and nvidia"),
        ("3090:1,h1000:1", "unknown GPU 'h1000'"),
    ],
)
def test_what_cannot_be_planned_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        read_gpu_counts(text)
    assert caught.value.field == "cluster.gpu"
    assert caught.value.hint


@given(
    names=st.lists(st.sampled_from(records.gpu_names()), min_size=1, max_size=4),
    counts=st.lists(st.integers(1, 9), min_size=4, max_size=4),
)
def test_no_mix_is_better_than_any_of_its_cards(names: list[str], counts: list[int]) -> None:
    text = ",".join(f"{name}:{count}" for name, count in zip(names, counts, strict=False))
    if len({records.gpu(name).vendor for name in names}) > 1:
        with pytest.raises(InvalidInputError, match="cannot share a job"):
            read_gpu_counts(text)
        return
    parts = read_gpu_counts(text)
    mix = governing_gpu(parts)
    for part in parts:
        assert mix.memory_bytes <= part.gpu.memory_bytes
        assert mix.hbm_bytes_per_second <= part.gpu.hbm_bytes_per_second
        assert all(peak <= part.gpu.peak_flops[dtype] for dtype, peak in mix.peak_flops.items())
        assert mix.nvlink_links <= part.gpu.nvlink_links
        assert part.gpu.has_p2p or not mix.has_p2p


@given(text=st.text(alphabet="309:,xh1 \0é", max_size=40))
def test_any_list_is_read_or_refused(text: str) -> None:
    try:
        parts = read_gpu_counts(text)
    except PlannerError as error:
        refusal = error
    else:
        assert all(part.count >= 1 for part in parts)
        return
    assert refusal.hint
