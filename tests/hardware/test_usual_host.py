import pytest
from conftest import JobMaker

from planner.catalog import records
from planner.catalog.interconnect import interconnect
from planner.hardware.usual_host import usual_host_bytes


def test_a_host_has_what_known_machines_of_its_gpu_have(make_job: JobMaker) -> None:
    known = [
        instance.host_memory_bytes / instance.gpus_per_node
        for instance in map(records.instance, records.instance_names())
        if instance.gpu == "a100-sxm-40gb" and instance.gpus_per_node > 1
    ]
    for gpus in (2, 8):
        cluster = make_job(gpu="a100-sxm-40gb", gpus=gpus).cluster
        assert usual_host_bytes(cluster) == pytest.approx(gpus * max(known))


def test_a_desktop_has_no_more_for_more_cards(make_job: JobMaker) -> None:
    one, four = (make_job(gpu="rtx-4090", gpus=gpus).cluster for gpus in (1, 4))
    assert usual_host_bytes(one) == usual_host_bytes(four) == interconnect().host.desktop_bytes


def test_a_card_that_no_cloud_sells_has_the_most_of_any(make_job: JobMaker) -> None:
    cluster = make_job(gpu="a40", gpus=2).cluster
    assert cluster.gpu.name not in {records.instance(name).gpu for name in records.instance_names()}
    sold = make_job(gpu="a100-sxm-40gb", gpus=2).cluster
    assert usual_host_bytes(cluster) >= usual_host_bytes(sold)
