import pytest

from planner.catalog import records
from planner.core.errors import InvalidInputError, UnknownNameError
from planner.core.units import GIGA, MICRO
from planner.domain.cluster import Link, Provenance
from planner.hardware.named_links import link_between, link_inside, single_port


def where_it_is(name: str) -> Link:
    """Return a link of the catalogue between nodes where it joins those, else inside of one."""
    record = records.link(name)
    between = record.kind == "network" or record.domain_gpus
    return link_between(name, 1) if between else link_inside(name)


def test_a_named_network_reaches_what_it_is_known_to_reach() -> None:
    roce, infiniband, measured = (
        link_between(name, 8) for name in ("roce-100g", "infiniband-ndr", "aws-efa-v4-b200")
    )
    assert roce.bytes_per_second == pytest.approx(12 * GIGA)
    assert infiniband.bytes_per_second == pytest.approx(0.9 * 50 * GIGA)
    assert measured.bytes_per_second == pytest.approx(381.8 * GIGA)
    assert [link.provenance.value for link in (roce, infiniband, measured)] == [
        "derived",
        "derived",
        "measured",
    ]
    assert roce.latency_seconds == pytest.approx(30 * MICRO)
    assert not roce.is_fast


@pytest.mark.parametrize(
    "text", ["8x infiniband-ndr", "8xinfiniband-ndr", "8 x Infiniband-NDR ", "8*infiniband-ndr"]
)
def test_ports_are_counted(text: str) -> None:
    link = link_between(text, 8)
    assert link.bytes_per_second == pytest.approx(8 * 0.9 * 50 * GIGA)
    assert (link.name, link.transport) == ("8x infiniband-ndr", "infiniband")
    assert link.latency_seconds == link_between("infiniband-ndr", 8).latency_seconds


def test_what_each_gpu_has_counts_for_every_gpu_of_a_node() -> None:
    of_one, of_four = (link_between("nvl72-gb200", gpus) for gpus in (1, 4))
    assert of_four.bytes_per_second == pytest.approx(4 * of_one.bytes_per_second)


@pytest.mark.parametrize("text", ["400Gbit/s", "400 Gbps", "8x50Gb/s", "2 x 200 Gbit/s"])
def test_a_lines_rate_is_nominal(text: str) -> None:
    link = link_between(text, 8)
    assert link.bytes_per_second == pytest.approx(0.9 * 50 * GIGA)
    assert (link.name, link.medium) == ("as given, 400 Gbit/s", "network")
    assert link.provenance == Provenance.DERIVED


@pytest.mark.parametrize("text", ["50GB/s", "50 GB/s", "2x 25GB/s", "50.0GBps"])
def test_a_rate_in_bytes_was_measured(text: str) -> None:
    between, inside = link_between(text, 8), link_inside(text)
    assert between.bytes_per_second == inside.bytes_per_second == 50 * GIGA
    assert between.provenance == inside.provenance == Provenance.MEASURED


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("20gb/s", "as a rate", "50GB/s"),
        ("0x infiniband-ndr", "no link", "0x"),
        ("4x aws-efa-v2", "all that a node has", "aws-efa-v2 alone"),
        ("nvlink-3", "nvlink-3 joins the GPUs of a node, not nodes", "--nvlink-domain GPUS"),
        ("4x pcie-4-x16", "joins the GPUs of a node, not nodes", "8x infiniband-ndr"),
        ("999x 99999GB/s", "out of range", "GB/s"),
        ("0GB/s", "out of range", "GB/s"),
        ("8x infiniband-ndrr", "unknown link 'infiniband-ndrr'", "infiniband-ndr"),
        ("8x infiniband-ndrr", "unknown link", "`planner links` lists all"),
        ("many\nlines", "unknown link", "`planner links` lists all"),
        ("8x", "'8x' names no link", "8x infiniband-ndr"),
        ("", "no link is named", "infiniband-ndr"),
        ("-5GB/s", "cannot read '-5GB/s' as a rate", "50GB/s"),
        ("1e3GB/s", "as a rate", "50GB/s"),
        ("4x -.5GB/s", "as a rate", "50GB/s"),
    ],
)
def test_what_cannot_be_read_says_how_to_write_it(text: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        link_between(text, 8)
    assert hint in caught.value.hint
    assert len(caught.value.hint) < 160
    assert caught.value.field == "cluster.inter_node"


def test_no_links_name_looks_like_a_rate() -> None:
    assert all(where_it_is(name).name.endswith(name) for name in records.link_names())


def test_inside_a_node_bits_are_no_measurement() -> None:
    with pytest.raises(InvalidInputError, match="line's rate") as caught:
        link_inside("160Gbit/s")
    assert caught.value.field == "cluster.intra_node"
    assert "20GB/s" in caught.value.hint
    with pytest.raises(InvalidInputError, match="all that a GPU has"):
        link_inside("2x nvswitch-h100")


@pytest.mark.parametrize(
    ("given", "gpus_per_node", "says"),
    [
        (
            "infiniband-hdr",
            4,
            "one 200 Gbit/s port per node (infiniband-hdr, 25.0 GB/s); 4x infiniband-hdr is one per GPU",
        ),
        ("infiniband-hdr", 1, ""),
        ("1x infiniband-hdr", 4, ""),
        ("dgx-h100-ndr", 8, ""),
        ("25GB/s", 8, ""),
    ],
)
def test_one_port_is_said_where_there_may_be_more(
    given: str, gpus_per_node: int, says: str
) -> None:
    assert single_port(given, gpus_per_node) == says


def test_a_named_link_tells_its_medium() -> None:
    names = ["nvswitch-h100", "pcie-4-x16", "roce-100g", "socket-amd-zen4"]
    assert [link_inside(name).medium for name in names] == ["nvlink", "pcie", "network", "given"]


def test_a_named_link_inside_a_node_is_fast_when_it_is_nvlink() -> None:
    assert link_inside("nvswitch-h100").is_fast
    assert not link_inside("PCIE-4-x16 ").is_fast
    assert link_inside("pcie-5-x16").latency_seconds == pytest.approx(0.85 * MICRO)
    assert link_inside("pcie-4-x16").latency_seconds == pytest.approx(15 * MICRO)


def test_a_named_nvlink_generation_means_all_links_of_the_gpu() -> None:
    one = link_inside("nvlink-3")
    assert one.name == "nvlink-3"
    assert one.bytes_per_second == pytest.approx(20 * GIGA)
    a100 = records.gpu("a100-sxm-80gb")
    all_of_them = link_inside("nvlink-3", a100)
    assert all_of_them.name == "12x nvlink-3"
    assert all_of_them.bytes_per_second == pytest.approx(12 * 20 * GIGA)
    assert link_inside("4x nvlink-3", a100).bytes_per_second == pytest.approx(4 * 20 * GIGA)


@pytest.mark.parametrize("name", ["nvswitch-h100", "pcie-4-x16", "roce-100g", "xgmi-mi300x"])
def test_other_names_mean_the_same_whatever_the_gpu(name: str) -> None:
    gpu = records.gpu("mi300x" if name.startswith("xgmi") else "h100")
    assert link_inside(name, gpu) == link_inside(name)


@pytest.mark.parametrize("name", records.link_names())
def test_every_link_can_be_named(name: str) -> None:
    link = where_it_is(name)
    assert 0.1 * GIGA < link.bytes_per_second < 1000 * GIGA
    assert 0 < link.latency_seconds < 1e-3
    assert link.source


def test_an_unknown_link_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="'infiniband-ndrr'") as caught:
        link_between("infiniband-ndrr", 8)
    assert caught.value.field == "cluster.inter_node"
    assert "infiniband-ndr" in caught.value.hint


def test_a_link_like_no_other_says_where_all_are_listed() -> None:
    with pytest.raises(UnknownNameError) as caught:
        link_inside("??")
    assert caught.value.field == "cluster.intra_node"
    assert "nvlink" in caught.value.hint
    assert "`planner links` lists all of them" in caught.value.hint


def test_a_measured_link_is_taken_at_its_word() -> None:
    link = link_inside({"bus_gb_per_s": 230, "latency_us": 9})
    assert link.bytes_per_second == 230 * GIGA
    assert link.latency_seconds == pytest.approx(9e-6)
    assert (link.provenance, link.is_fast) == (Provenance.MEASURED, True)
    between = link_between({"gb_per_s_per_node": 25}, 8)
    assert between.bytes_per_second == 25 * GIGA
    assert between.latency_seconds == pytest.approx(15 * MICRO)
    assert not between.is_fast
