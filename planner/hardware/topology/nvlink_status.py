"""`nvidia-smi nvlink -s` and `nvidia-smi -L` -> names, links that are up and MIG instances by GPU."""

import re
from collections import Counter
from collections.abc import Iterable

from planner.core.units import GIGA
from planner.domain.topology import MOST_GPUS, Topology
from planner.hardware.topology.clean import Line
from planner.hardware.topology.refusal import refusal

_GPU = re.compile(r"\s*GPU ([0-9]{1,6}): ([!-~][ -~]{0,79}?)\s{0,4}\(UUID")
_LINK = re.compile(r"\s*Link ([0-9]{1,2}):\s{0,4}(?:([0-9]{1,3}(?:\.[0-9]{1,6})?) GB/s|<inactive>)")
_INSTANCE = re.compile(r"\s*MIG[ -][0-9]{1,2}[cg]\.\S{1,40}\s{1,20}Device\s{1,4}[0-9]{1,3}:")
_NONE_UP = re.compile(r"all links are inactive", re.IGNORECASE)


def read_devices(lines: Iterable[Line]) -> Topology | None:
    """Return names, active links, the rate of one link and MIG instances; None where no GPU is listed.

    Which GPU a link leads to is not printed.

    Raises:
        InvalidInputError: a GPU's number is beyond any node.
    """
    names: dict[int, str] = {}
    rates: dict[int, dict[str, float]] = {}
    instances: Counter[int] = Counter()
    gpu = -1
    for line in lines:
        if device := _GPU.match(line.text):
            gpu = _index(device[1], line.number)
            names[gpu] = device[2]
        elif gpu >= 0 and (link := _LINK.match(line.text)):
            rates.setdefault(gpu, {})[link[1]] = float(link[2] or 0) * GIGA
        elif gpu >= 0 and _INSTANCE.match(line.text):
            instances[gpu] += 1
        elif gpu >= 0 and _NONE_UP.search(line.text):
            rates.setdefault(gpu, {})
    if not names:
        return None
    active = {gpu: [rate for rate in links.values() if rate] for gpu, links in rates.items()}
    return Topology(
        num_gpus=max(names) + 1,
        nvlink={},
        pcie={},
        gpu_names=tuple(names.get(gpu, "") for gpu in range(max(names) + 1)),
        active_nvlinks={gpu: len(links) for gpu, links in active.items()},
        nvlink_bytes_per_second={gpu: min(links) for gpu, links in active.items() if links},
        mig_instances=dict(instances),
    )


def _index(digits: str, number: int) -> int:
    if int(digits) >= MOST_GPUS:
        raise refusal(f"line {number}: GPU {digits}; a node has at most {MOST_GPUS}")
    return int(digits)
