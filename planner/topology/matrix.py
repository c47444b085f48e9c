"""The matrix that `nvidia-smi topo -m` prints -> how each pair of GPUs is connected."""

import re

from planner.errors import InvalidInputError
from planner.topology.graph import Topology

LARGEST_TEXT = 64 * 1024
"""Characters; a real matrix has at most a few thousand."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_GPU = re.compile(r"GPU[0-9]+$")
_CELL = re.compile(r"(X|NV[1-9][0-9]?|PIX|PXB|PHB|NODE|SYS)$")
_OLD_NAMES = {"SOC": "SYS"}
"""What drivers before 2017 print."""


def parse_topology(text: str) -> Topology:
    """Read a well-formed `nvidia-smi topo -m`.

    Raises:
        InvalidInputError: there is no matrix, or a row of it cannot be read; says which.
    """
    if len(text) > LARGEST_TEXT:
        raise _invalid(f"the topology has more than {LARGEST_TEXT:,} characters")
    lines = [_ANSI.sub("", line).split() for line in text.splitlines()]
    header = next((i for i, tokens in enumerate(lines) if tokens and tokens[0] == "GPU0"), None)
    if header is None:
        raise _invalid("the topology has no header line with GPU0 in it")
    columns = [token for token in lines[header] if _GPU.match(token)]
    if columns != [f"GPU{index}" for index in range(len(columns))]:
        raise _invalid(f"line {header + 1}: the GPUs are not numbered GPU0, GPU1, ...")
    rows = _rows(lines, header, len(columns))
    return _topology(rows)


def _rows(lines: list[list[str]], header: int, num_gpus: int) -> list[list[str]]:
    rows: list[list[str]] = []
    for index, tokens in enumerate(lines[header + 1 :], start=header + 1):
        if not tokens or not _GPU.match(tokens[0]) or len(rows) == num_gpus:
            continue
        cells = [_OLD_NAMES.get(token, token) for token in tokens[1 : num_gpus + 1]]
        if tokens[0] != f"GPU{len(rows)}" or len(cells) < num_gpus:
            raise _invalid(f"line {index + 1}: expected GPU{len(rows)} with {num_gpus} cells")
        unknown = next((cell for cell in cells if not _CELL.match(cell)), None)
        if unknown:
            raise _invalid(f"line {index + 1}: cannot read {unknown[:20]!r}")
        rows.append(cells)
    if len(rows) < num_gpus:
        raise _invalid(f"the topology has {len(rows)} rows for {num_gpus} GPUs")
    return rows


def _topology(rows: list[list[str]]) -> Topology:
    nvlink: dict[tuple[int, int], int] = {}
    pcie: dict[tuple[int, int], str] = {}
    for low, row in enumerate(rows):
        if row[low] != "X":
            raise _invalid(f"GPU{low} reads {row[low]!r} to itself, not X")
        for high in range(low + 1, len(rows)):
            cell = row[high]
            if cell != rows[high][low] or cell == "X":
                raise _invalid(f"GPU{low}-GPU{high} reads {cell!r} and {rows[high][low]!r}")
            if cell.startswith("NV"):
                nvlink[low, high] = int(cell[2:])
            else:
                pcie[low, high] = cell
    return Topology(num_gpus=len(rows), nvlink=nvlink, pcie=pcie)


def _invalid(message: str) -> InvalidInputError:
    return InvalidInputError(
        message, hint="paste the whole output of `nvidia-smi topo -m`", field="cluster.topology"
    )
