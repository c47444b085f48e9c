"""A machine's own figures win over the catalogue's, and what it has none of is named."""

from copy import deepcopy
from typing import Any

import pytest
from test_document import WHOLE

from planner import answers
from planner.catalog import records
from planner.collectives import operations
from planner.core.errors import InvalidInputError
from planner.domain.cluster import Group, Provenance
from planner.request.schema import Resolved, parse_request, resolve

LEAST: dict[str, Any] = {key: WHOLE[key] for key in ("kind", "version", "created", "cluster")}
STRATEGY = {"zero_stage": 3, "micro_batch_size": 1}


def _answers(requests: list[dict[str, Any]]) -> list[Any]:
    return list(answers.answer_batch(requests, allow_paths=False))


def _resolved(machine: dict[str, Any] | None, **cluster: Any) -> Resolved:
    request: dict[str, Any] = {"model": "meta-llama/Llama-2-7b-hf", "strategy": STRATEGY}
    request |= {"cluster": cluster} if cluster else {}
    request |= {"machine": machine} if machine else {}
    return resolve(parse_request(request), allow_paths=False)


def _seconds(machine: dict[str, Any] | None, **cluster: Any) -> dict[str, float]:
    request = {"model": "meta-llama/Llama-2-7b-hf", "strategy": STRATEGY, "cluster": cluster}
    request |= {"machine": machine} if machine else {}
    (answer,) = _answers([request])
    return {term["name"]: term["seconds"] for term in answer["time"]["terms"]}


def test_the_machine_says_which_gpus_are_meant_where_nothing_else_does() -> None:
    cluster = _resolved(LEAST).job.cluster
    assert (cluster.gpu.name, cluster.gpus_per_node, cluster.nodes) == ("h100-sxm-80gb", 8, 2)
    one = _resolved(LEAST, gpus_per_node=4, nodes=1).job.cluster
    assert (one.gpu.name, one.gpus_per_node, one.nodes) == ("h100-sxm-80gb", 4, 1)


def test_a_machine_of_other_gpus_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="h100-sxm-80gb GPUs, and the job asks for a100"):
        _resolved(LEAST, gpu="a100", gpus_per_node=8)


def test_an_empty_machine_changes_nothing_and_says_so() -> None:
    here = {"gpu": "h100", "gpus_per_node": 8, "nodes": 2}
    assert _seconds(LEAST, **here) == _seconds(None, **here)
    resolved = _resolved(LEAST, **here)
    assert resolved.machine is not None
    assert resolved.machine.own == ()
    assert "matmuls" in resolved.machine.from_catalogue
    said = [each.text for each in resolved.assumptions if each.field == "machine"]
    assert len(said) == 1
    assert "collectives" in said[0]
    assert "of the catalogue" in said[0]


@pytest.mark.parametrize(
    ("kind", "grows", "stays"),
    [
        ("compute", "forward", "offload"),
        ("communication", "gradient_reduction", "forward"),
    ],
)
def test_an_anchor_changes_what_it_speaks_of(kind: str, grows: str, stays: str) -> None:
    here = {"gpu": "h100", "gpus_per_node": 8, "nodes": 2}
    anchors = {kind: {"factor": 1.5, "spread": 0.1, "runs": 1}}
    before, after = _seconds(None, **here), _seconds({**LEAST, "anchors": anchors}, **here)
    assert after[grows] > 1.3 * before[grows]
    assert after.get(stays) == before.get(stays)


def test_an_anchor_of_kernels_scales_forward_but_for_what_waits_for_the_host() -> None:
    here = {"gpu": "h100", "gpus_per_node": 1}
    request = {
        "model": "meta-llama/Llama-2-7b-hf",
        "cluster": here,
        "recipe": {"sequence_length": 4096},
        "strategy": {"micro_batch_size": 4},
    }
    anchors = {"compute": {"factor": 1.25, "spread": 0.1, "runs": 1}}
    with_anchor = {**request, "machine": {**LEAST, "anchors": anchors}}
    before, after = (
        {term["name"]: term["seconds"] for term in answer["time"]["terms"]}
        for answer in _answers([request, with_anchor])
    )
    assert after["forward"] == pytest.approx(1.25 * before["forward"], rel=0.01)
    assert after["optimizer"] == pytest.approx(1.25 * before["optimizer"])


def test_timed_exchanges_are_taken_as_they_were_timed() -> None:
    points = [{"bytes": 1e6, "seconds": 1e-3}, {"bytes": 1e9, "seconds": 0.5}]
    curves = [{"operation": "all_reduce", "ranks": 16, "nodes": 2, "points": points}]
    resolved = _resolved({**LEAST, "collectives": curves})
    cluster = resolved.job.cluster
    everyone = Group(ranks=16)
    assert operations.all_reduce(cluster, everyone, 1e9) == pytest.approx(0.5)
    assert operations.all_reduce(cluster, everyone, 2e9) == pytest.approx(1.0)
    assert operations.all_reduce(cluster, everyone, 1e3) == pytest.approx(1e-3)
    between = operations.all_reduce(cluster, everyone, 3e7)
    assert 1e-3 < between < 0.5
    assert operations.provenance(cluster, everyone) is Provenance.OWN
    assert cluster.inter_node is not None
    assert cluster.inter_node.bytes_per_second == pytest.approx(2 * 15 / 16 * 1e9 / 0.5)
    assert not any(each.field == "cluster.inter_node" for each in resolved.assumptions)


def test_a_ring_of_a_node_sets_what_its_other_groups_get() -> None:
    """A tenth of NVSwitch's rate, as nccl-tests' all_reduce alone says it, holds for gathers and for halves."""
    points = [{"bytes": 1e6, "seconds": 1e-4}, {"bytes": 1e9, "seconds": 1.75 / 36}]
    machine = {**LEAST, "collectives": [{"operation": "all_reduce", "ranks": 8, "points": points}]}
    here = {"gpu": "h100", "gpus_per_node": 8, "nodes": 1}
    cluster = _resolved(machine, **here).job.cluster
    gathered = operations.all_gather(cluster, Group(ranks=8), 1e9)
    assert gathered == pytest.approx(7 / 8 / 36, rel=0.03)
    assert operations.all_reduce(cluster, Group(ranks=4), 1e9) == pytest.approx(1.5 / 36, rel=0.03)
    assert gathered > 8 * operations.all_gather(
        _resolved(None, **here).job.cluster, Group(ranks=8), 1e9
    )


def test_the_curve_of_matmuls_goes_through_timed_products() -> None:
    products = [
        {"m": n, "n": n, "k": n, "seconds": 2 * n**3 / 5e14 + 1e-5} for n in (512, 2048, 8192)
    ]
    gemm = [{"dtype": "bf16", "points": products}]
    curve = _resolved({**LEAST, "gemm": gemm}).job.cluster.gpu.gemm
    assert curve.peak_fraction == pytest.approx(5e14 / 989e12, rel=0.1)
    assert curve.spread < 0.1
    assert curve.source == "measured on machine, 2026-11-22"


def test_timed_attention_copies_updates_and_launches_are_taken() -> None:
    machine = deepcopy(WHOLE)
    machine["attention"][0]["head_size"] = 128
    resolved = _resolved(machine)
    gpu, host = resolved.job.cluster.gpu, resolved.job.framework.host
    assert gpu.host_link_bytes_per_second == 5e10
    assert gpu.optimizer_bytes_per_second == pytest.approx(2.5e12 / 1.1)
    usual = records.framework("torch").host
    assert host.operation_seconds == pytest.approx(
        usual.operation_seconds * (4e-6 / usual.launch_seconds) ** 0.5
    )
    (attention,) = gpu.timed_attention
    flops = 2 * 16 * 4096**2 * 128
    assert attention.forward == pytest.approx((flops / 1e-3 / gpu.peak_flops["bf16"],))
    assert resolved.machine is not None
    assert resolved.machine.from_catalogue == ()


def test_a_step_s_range_keeps_the_share_that_is_left_of_it() -> None:
    here = {"gpu": "h100", "gpus_per_node": 8}
    request = {"model": "gpt2", "cluster": here, "strategy": {"micro_batch_size": 32}}
    half = {**request, "machine": {**LEAST, "anchors": {"range_share": 0.5}}}
    wide, narrow = (
        answer["time"]["high_seconds"] / answer["time"]["step_seconds"] - 1
        for answer in _answers([request, half])
    )
    assert narrow == pytest.approx(wide / 2, rel=0.05)


def test_a_slow_host_that_was_measured_widens_no_range() -> None:
    here = {"gpu": "h100", "gpus_per_node": 1}
    request = {"model": "gpt2", "cluster": here, "strategy": {"micro_batch_size": 1}}
    host = {"factor": 3.0, "spread": 0.05, "runs": 4}
    slow = {**LEAST, "anchors": {"host": host, "range_share": 1.2}}
    wide, known = (
        answer["time"]["high_seconds"] / answer["time"]["step_seconds"]
        for answer in _answers([request, {**request, "machine": slow}])
    )
    assert known < wide


def test_an_answer_says_which_numbers_are_the_machine_s_own() -> None:
    request = {"model": "gpt2", "strategy": {"micro_batch_size": 1}, "machine": WHOLE}
    (answer,) = _answers([request])
    assert answer["machine"]["name"] == "rack 7"
    assert any("memory bandwidth" in note for note in answer["notes"])


def test_a_bad_machine_of_a_request_is_refused_by_its_field() -> None:
    request = {"model": "gpt2", "strategy": {}, "machine": {**LEAST, "version": 7}}
    (answer,) = _answers([request])
    assert answer["error"]["field"] == "machine.version"


CORES: dict[str, Any] = {
    **{key: WHOLE[key] for key in ("kind", "version", "created")},
    "cluster": {"gpu": "cpu", "gpus_per_node": 2, "memory_bytes": 2**34},
    "memory_bytes_per_second": 1e10,
    "gemm": [{"dtype": "fp32", "points": [{"m": 512, "n": 512, "k": 512, "seconds": 6e-3}]}],
}


def test_a_card_that_no_record_has_is_what_its_file_says() -> None:
    resolved = _resolved(CORES)
    gpu = resolved.job.cluster.gpu
    assert (gpu.name, gpu.memory_bytes) == ("cpu", 2**34)
    assert _resolved(CORES).job.framework.device.context_bytes == 0
    assert gpu.peak_flops["fp32"] == pytest.approx(2 * 512**3 / 6e-3 / 0.9)
    assert not any("memory one cpu has" in note for note in resolved.notes)
    unsaid = CORES | {"cluster": {"gpu": "cpu", "gpus_per_node": 2}}
    assert any("memory one cpu has" in note for note in _resolved(unsaid).notes)


def test_a_card_that_no_record_has_needs_what_stands_for_one() -> None:
    less = {key: CORES[key] for key in CORES if key != "gemm"}
    with pytest.raises(InvalidInputError, match="no GPU of the catalogue"):
        _resolved(less)


def test_what_compute_loses_beside_an_exchange_is_taken_as_it_was_timed() -> None:
    here = {"gpu": "h100", "gpus_per_node": 8, "nodes": 2}

    def lost(gather: float, scatter: float) -> float:
        curves = [
            {
                "operation": operation,
                "ranks": 16,
                "nodes": 2,
                "points": [{"bytes": 2**20, "seconds": 1e-4}, {"bytes": 2**28, "seconds": 1e-2}],
                "slowdown": slowdown,
            }
            for operation, slowdown in (("all_gather", gather), ("reduce_scatter", scatter))
        ]
        return _seconds({**LEAST, "collectives": curves}, **here)["overlap_slowdown"]

    assert lost(0.2, 0.1) > 0
    assert lost(0.8, 0.1) == pytest.approx(4 * lost(0.2, 0.1))
    assert lost(0.1, 0.8) == lost(0.8, 0.1)
    assert lost(0.0, 0.0) == 0


def test_cores_launch_their_own_work() -> None:
    """What launching takes adds to the work, where a GPU's host runs ahead of it."""
    gpus = _resolved({**LEAST, "launch_seconds": 1e-5}).job.framework.host
    machine = {
        **LEAST,
        "cluster": {"gpu": "cpu", "gpus_per_node": 2},
        "memory_bytes_per_second": 1e10,
        "gemm": [{"dtype": "fp32", "points": [{"m": 64, "n": 64, "k": 64, "seconds": 1e-5}]}],
        "launch_seconds": 1e-5,
    }
    cores = _resolved(machine).job.framework.host
    assert (gpus.sharpness, cores.sharpness) == (3.0, 1.0)
    assert cores.operation_seconds == 1e-5 < gpus.operation_seconds
