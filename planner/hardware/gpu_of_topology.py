"""Which GPUs have the NVLinks that a topology shows, where it does not name them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations

from planner.catalog import records
from planner.catalog.interconnect import interconnect
from planner.core.errors import InvalidInputError
from planner.domain.cluster import Gpu
from planner.domain.topology import Pair, Topology
from planner.hardware.node_links import cube_links, links_of_record

_BOARD_OF_FOUR = 4
"""GPUs of a baseboard without a switch: each shares its links evenly among the other three."""
_PAIR = 2
_NAMED = 12
"""Candidates that an error lists."""


def gpu_of_topology(topology: Topology) -> tuple[Gpu, str] | None:
    """Return the likeliest GPU with the NVLinks that are shown, and what else has such; None without NVLink.

    Of several the one that stands first in `data/calibration/interconnect.toml`, likeliest_gpus.

    Raises:
        InvalidInputError: none of those is wired so; names the GPUs that are.
    """
    if not topology.nvlink:
        return None
    gpus = [records.gpu(name) for name in records.gpu_names()]
    names = [gpu.name for gpu in gpus if _is_wired_so(gpu, topology)]
    likely = [name for name in interconnect().nvlink.likeliest_gpus if name in names]
    if topology.num_gpus == _PAIR:  # two of a mesh look as two cards with a bridge do
        likely = [name for name in likely if records.gpu(name).nvlink_fabric != "mesh"]
    if not likely:
        raise InvalidInputError(
            "the topology shows NVLinks, but not of which GPU",
            hint=f"name it with --gpu: one of {', '.join(names[:_NAMED])}"
            if names
            else "name it with --gpu; no known GPU is wired so",
            field="cluster.gpu",
        )
    others = [name for name in names if name != likely[0]][:_NAMED]
    return records.gpu(likely[0]), f" ({', '.join(others)} too)" if others else ""


def strange_links(gpu: Gpu, topology: Topology) -> str:
    """Return a note where the topology shows NVLinks that no node of such GPUs has, else ""."""
    if gpu.nvlink_fabric == "nvswitch":
        possible = {gpu.nvlink_links, gpu.nvlink_links // (_BOARD_OF_FOUR - 1)}
    else:
        possible = set(range(1, gpu.nvlink_links + 1))
    strange = sorted(set(topology.nvlink.values()) - possible)
    if not strange:
        return ""
    has = ", ".join(f"NV{links}" for links in sorted(possible))
    return (
        f"the topology shows {', '.join(f'NV{links}' for links in strange)}, which is of another"
        f" generation: {gpu.name} has {has or 'no NVLink'}; its links are counted as they are shown"
    )


def _is_wired_so(gpu: Gpu, topology: Topology) -> bool:
    """Return whether such a node could have these NVLinks, its GPUs in whatever order."""
    if gpu.vendor != "nvidia" or not gpu.nvlink_links:
        return False
    unknown = set(topology.missing_pairs)
    if gpu.nvlink_fabric == "bridge":
        bridged = Counter(each for pair in topology.nvlink for each in pair)
        return max(bridged.values()) == 1 and set(topology.nvlink.values()) == {gpu.nvlink_links}
    seen = _links_by_gpu(topology.nvlink, topology.num_gpus)
    if unknown:
        # What was not read may be as what was: all pairs alike, or nothing can be said.
        pairs = dict.fromkeys(unknown, max(topology.nvlink.values()))
        seen = _links_by_gpu({**topology.nvlink, **pairs}, topology.num_gpus)
    return any(
        _links_by_gpu(wired, topology.num_gpus) == seen for wired in _nodes(gpu, topology.num_gpus)
    )


def _nodes(gpu: Gpu, num_gpus: int) -> Iterator[Mapping[Pair, int]]:
    """Yield the NVLinks of every kind of node that such GPUs are sold in."""
    yield links_of_record(gpu, num_gpus, peer_to_peer=None).nvlink
    pairs = list(combinations(range(num_gpus), 2))
    if num_gpus == _BOARD_OF_FOUR:
        yield dict.fromkeys(pairs, gpu.nvlink_links // (num_gpus - 1))
    if gpu.nvlink_fabric == "mesh":
        yield cube_links(gpu, num_gpus)


def _links_by_gpu(nvlink: Mapping[Pair, int], num_gpus: int) -> list[list[int]]:
    return sorted(
        sorted(links for pair, links in nvlink.items() if gpu in pair) for gpu in range(num_gpus)
    )
