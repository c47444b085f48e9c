"""A sweep on a Ray cluster of two workers, each a machine to Ray, and what a killed one loses."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray import cluster_utils

from planner.core.errors import InvalidInputError
from planner.sweep import ray_cluster
from planner.sweep.ray_cluster import on_ray
from planner.sweep.row import Chunk
from planner.sweep.run import in_this_process

STORE_BYTES = 80 * 2**20
"""What Ray asks for at the least is 75 MiB."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patched.setenv("RAY_raylet_start_wait_time_s", "120")
        node: dict[str, Any] = {
            "num_cpus": 1,
            "object_store_memory": STORE_BYTES,
            "include_dashboard": False,
        }
        found: Any = cluster_utils.Cluster(initialize_head=True, head_node_args=node)
        found.add_node(**node)
        yield found
        found.shutdown()


def chunks() -> list[Chunk]:
    of_gpus = [{"model": "gpt2", "cluster": {"gpu": gpu}} for gpu in ("t4", "a100", "h100", "nope")]
    return [
        [{**request, "id": f"{number} {each}"} for each, request in enumerate(of_gpus)]
        for number in range(6)
    ]


def workers_of(cluster: Any) -> list[int]:
    """Return the processes of this cluster's machines that plan."""
    raylets = {
        process.process.pid
        for node in cluster.list_all_nodes()
        for process in node.all_processes["raylet"]
    }
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if title.startswith(b"ray::Planner") and parent in raylets:
            found.append(int(folder.name))
    return found


def test_a_killed_worker_loses_nothing_and_lines_are_those_of_one_process(cluster: Any) -> None:
    expected = sorted(line for lines in in_this_process(chunks()) for line in lines)
    found: list[str] = []
    killed: list[int] = []
    for lines in on_ray(iter(chunks()), cluster.address):
        found += lines
        if not killed:
            killed = workers_of(cluster)[:1]
            os.kill(killed[0], signal.SIGKILL)
    assert killed
    assert sorted(found) == expected


def test_a_machine_with_another_version_is_refused(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "__version__", "0.0.1")
    with pytest.raises(InvalidInputError, match=r"has planner .*, not 0\.0\.1"):
        list(on_ray(iter(chunks()), cluster.address))


def test_an_address_without_a_cluster_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no Ray cluster at 'nonsense'"):
        list(on_ray(iter(chunks()), "nonsense"))
