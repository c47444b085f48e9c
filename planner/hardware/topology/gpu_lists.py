"""Lists of GPUs that may leave some out: `nvidia-smi nvlink -s`, `-L`, `--query-gpu=... --format=csv`."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from planner.core.units import GIGA, MIB
from planner.domain.topology import MOST_GPUS, Topology
from planner.hardware.topology.clean import Line
from planner.hardware.topology.refusal import refusal

_GPU = re.compile(r"\s*GPU ([0-9]{1,6}): ([!-~][ -~]{0,79}?)\s{0,4}\(UUID")
_LINK = re.compile(r"\s*Link ([0-9]{1,2}):\s{0,4}(?:([0-9]{1,3}(?:\.[0-9]{1,6})?) GB/s|<inactive>)")
_INSTANCE = re.compile(r"\s*MIG[ -][0-9]{1,2}[cg]\.\S{1,40}\s{1,20}Device\s{1,4}[0-9]{1,3}:")
_NONE_UP = re.compile(r"all links are inactive", re.IGNORECASE)
_FIELD = re.compile(r"([a-z][a-z_.]{1,59})(?: \[[A-Za-z%/]{1,8}\])?$")
_KNOWN = {"index", "name", "gpu_name", "memory.total", "pcie.link.gen.max", "pcie.link.width.max"}
_NAME = re.compile(r"[!-~][ -~]{0,79}$")
_AMOUNT = re.compile(r"([0-9]{1,8})(?: MiB)?$")
_LARGEST_GENERATION = 8
_MOST_LANES = 32


def read_devices(lines: Iterable[Line]) -> Topology | None:
    """Return the names, active links, the rate of one link and MIG instances; None where no GPU is listed.

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


def read_gpu_table(lines: Iterable[Line]) -> Topology | None:
    """Return what the columns of a table of names, memory and PCIe slots say; None where there is no table with a header.

    Raises:
        InvalidInputError: a GPU's number is beyond any node.
    """
    rows = dict(_rows(lines))
    if not rows:
        return None
    num_gpus = max(rows) + 1
    names = {gpu: row.get("name") or row.get("gpu_name", "") for gpu, row in rows.items()}
    return Topology(
        num_gpus=num_gpus,
        nvlink={},
        pcie={},
        gpu_names=tuple(
            name if _NAME.match(name := names.get(gpu, "")) else "" for gpu in range(num_gpus)
        ),
        memory_bytes={
            gpu: mebibytes * MIB for gpu, mebibytes in _column(rows, "memory.total").items()
        },
        pcie_generation=_column(rows, "pcie.link.gen.max", _LARGEST_GENERATION),
        pcie_lanes=_column(rows, "pcie.link.width.max", _MOST_LANES),
        mig_instances={
            gpu: 0 for gpu, row in rows.items() if row.get("mig.mode.current") == "Enabled"
        },
    )


def _rows(lines: Iterable[Line]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield each GPU's fields by name; without an index column GPUs are counted."""
    header: list[str] = []
    count = 0
    for line in lines:
        values = [value.strip() for value in line.text.split(",")] if "," in line.text else []
        if names := _header(values):
            header, count = names, 0
        elif header and len(values) == len(header):
            row = dict(zip(header, values, strict=True))
            digits = row.get("index", str(count))
            if not re.fullmatch("[0-9]{1,6}", digits):
                continue
            yield _index(digits, line.number), row
            count += 1
        else:
            header = []


def _header(values: list[str]) -> list[str]:
    matches = [_FIELD.match(value) for value in values]
    names = [match[1] for match in matches if match]
    return names if len(names) == len(values) and _KNOWN & set(names) else []


def _column(rows: Mapping[int, Mapping[str, str]], name: str, most: int = 10**8) -> dict[int, int]:
    """Return the whole positive numbers of a column; `[N/A]` and the like are left out."""
    amounts = {gpu: _AMOUNT.match(row.get(name, "")) for gpu, row in rows.items()}
    return {
        gpu: int(amount[1])
        for gpu, amount in amounts.items()
        if amount and 0 < int(amount[1]) <= most
    }
