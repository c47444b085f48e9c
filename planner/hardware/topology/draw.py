"""Topology -> a picture in plain text, at most 100 columns wide."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, groupby
from textwrap import fill

from planner.domain.topology import Nic, Pair, Topology
from planner.hardware.topology.words import gpu_span, ranges, some_pairs

WIDTH = 100

_WIDEST_MATRIX = 16
"""GPUs; more columns than that do not fit the page."""
_MOST_NAMES = 2
"""Of unlike GPUs in the title; more fill its line."""
_MOST_BRIDGES = 4
"""Of a mesh, between two islands, that are named one by one."""
_MOST_LINES = 12
"""Of the table between islands; with more, classes are counted."""


def draw(topology: Topology) -> str:
    """Return islands, what lies between them, NUMA nodes, adapters and findings."""
    sections = [
        fill(_title(topology), WIDTH),
        _boxes(topology),
        _table("Between them", _between(topology)),
        _table("By GPU", _places(topology)),
        _peer_to_peer(topology),
        _findings(topology),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _title(topology: Topology) -> str:
    names = [f"{len(list(alike))} x {name}" for name, alike in groupby(topology.gpu_names)]
    gpus = f"{topology.num_gpus} GPU{'s' if topology.num_gpus > 1 else ''}"
    gpus_text = ", ".join(names) if 0 < len(names) <= _MOST_NAMES else gpus
    if topology.num_gpus == 1:
        return gpus_text
    if not topology.nvlink:
        return f"{gpus_text}, no NVLink{' was read' if topology.missing_pairs else ''}"
    islands = _islands(topology)
    joined = [island for island in islands if len(island) > 1]
    alone = len(islands) - len(joined)
    if not islands:
        return f"{gpus_text}, joined by NVLink as far as was read"
    islands_text = f"{len(joined)} NVLink island{'s' if len(joined) > 1 else ''}"
    return f"{gpus_text}, {islands_text}{f' and {alone} alone' if alone else ''}"


def _boxes(topology: Topology) -> str:
    """Return the islands as boxes beside each other; all GPUs in one where there are none."""
    groups = _islands(topology) or (tuple(range(topology.num_gpus)),)
    rows: list[list[list[str]]] = []
    for box in (_box(topology, gpus) for gpus in groups):
        used = sum(len(drawn[0]) + 2 for drawn in rows[-1]) if rows else WIDTH
        if used + 2 + len(box[0]) > WIDTH:
            rows.append([])
        rows[-1].append(box)
    return "\n".join(_side_by_side(row) for row in rows)


def _islands(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """Return the islands that can be told: none without NVLink, or with gaps in a small matrix."""
    has_gaps = topology.missing_pairs and topology.num_gpus <= _WIDEST_MATRIX
    return topology.islands if topology.nvlink and not has_gaps else ()


def _box(topology: Topology, gpus: Sequence[int]) -> list[str]:
    content = _inside(topology, gpus)
    width = max(len(line) for line in content)
    edge = f"+-{'-' * width}-+"
    return [edge, *(f"| {line:<{width}} |" for line in content), edge]


def _inside(topology: Topology, gpus: Sequence[int]) -> list[str]:
    pairs = tuple(combinations(gpus, 2))
    words = {_word(topology, pair) for pair in pairs}
    if len(gpus) == 1:
        return [f"GPU{gpus[0]}"]
    if len(words) == 1:
        of_every_pair = "every pair" if len(pairs) > 1 else ""
        return [f"{gpu_span(gpus)}: {words.pop()} {of_every_pair}".rstrip()]
    if len(gpus) > _WIDEST_MATRIX:
        counts = _counted(topology, pairs)
        return [gpu_span(gpus), *(f"  {word}: {len(pairs)} pairs" for word, pairs in counts)]
    widest = max(len(word) for word in words)
    gap = 2 if len(gpus) <= _WIDEST_MATRIX // 2 else 1
    lines = [_matrix_line("GPU", [str(gpu) for gpu in gpus], widest + gap)]
    for gpu in gpus:
        cells = ["." if to == gpu else _word(topology, _pair(gpu, to)) for to in gpus]
        lines.append(_matrix_line(str(gpu), cells, widest + gap))
    return lines


def _matrix_line(label: str, cells: Sequence[str], width: int) -> str:
    return f"{label:>3} " + "".join(f"{cell:>{width}}" for cell in cells)


def _pair(gpu: int, peer: int) -> Pair:
    return min(gpu, peer), max(gpu, peer)


def _word(topology: Topology, pair: Pair) -> str:
    if pair in topology.nvlink:
        return f"NV{topology.nvlink[pair]}"
    return topology.pcie.get(pair, "?")


def _side_by_side(boxes: Sequence[Sequence[str]]) -> str:
    height = max(len(box) for box in boxes)
    lines = (
        "  ".join(box[line] if line < len(box) else " " * len(box[0]) for box in boxes).rstrip()
        for line in range(height)
    )
    return "\n".join(f"  {line}".rstrip() for line in lines)


def _counted(
    topology: Topology, pairs: Iterator[Pair] | Collection[Pair]
) -> list[tuple[str, list[Pair]]]:
    """Return the pairs of each word, NVLink first, then from near to far, unknown last."""
    by_word: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_word.setdefault(_word(topology, pair), []).append(pair)
    order = ("PIX", "PXB", "PHB", "NODE", "SYS", "?")
    return sorted(
        by_word.items(),
        key=lambda item: (order.index(item[0]) if item[0] in order else -1, item[0]),
    )


def _between(topology: Topology) -> list[tuple[str, ...]]:
    """Return what joins each two islands; with many islands, how many pairs have each class."""
    islands = _islands(topology)
    apart = list(combinations(islands, 2))
    if len(apart) > _MOST_LINES:
        island_of = {gpu: island for island in islands for gpu in island}
        pairs = [pair for pair in topology.pairs if island_of[pair[0]] != island_of[pair[1]]]
        return [
            (_said(word), f"{len(some)} pair{'s' if len(some) > 1 else ''}", some_pairs(some))
            for word, some in _counted(topology, pairs)
        ]
    return [
        (f"{gpu_span(first)} - {gpu_span(second)}", _kinds(topology, first, second))
        for first, second in apart
    ]


def _kinds(topology: Topology, first: Sequence[int], second: Sequence[int]) -> str:
    pairs = [_pair(a, b) for a in first for b in second]
    counts = _counted(topology, pairs)
    if len(counts) == 1:
        return _said(counts[0][0]) + (" every pair" if len(pairs) > 1 else "")
    return "; ".join(
        f"{_said(word)} {' '.join(f'{a}-{b}' for a, b in sorted(some))}"
        if word.startswith("NV") and len(some) <= _MOST_BRIDGES
        else f"{_said(word)} {len(some)} pair{'s' if len(some) > 1 else ''}"
        for word, some in counts
    )


def _said(word: str) -> str:
    return "unknown" if word == "?" else word


def _places(topology: Topology) -> list[tuple[str, ...]]:
    facts = {gpu: _facts(topology, gpu) for gpu in range(topology.num_gpus)}
    used = [any(fact[column] for fact in facts.values()) for column in range(4)]
    if not any(used):
        return []
    names = ("NUMA node", "PCIe slot", "NVLinks up", "nearest adapters")
    header = ("GPU", *(name for name, use in zip(names, used, strict=True) if use))
    groups: dict[tuple[str, ...], list[int]] = {}
    for gpu, fact in facts.items():
        shown = tuple(cell or "-" for cell, use in zip(fact, used, strict=True) if use)
        groups.setdefault(shown, []).append(gpu)
    return [header, *((gpu_span(gpus)[3:], *fact) for fact, gpus in groups.items())]


def _facts(topology: Topology, gpu: int) -> tuple[str, str, str, str]:
    generation, lanes = topology.pcie_generation.get(gpu), topology.pcie_lanes.get(gpu)
    up, rate = topology.active_nvlinks.get(gpu), topology.nvlink_bytes_per_second.get(gpu)
    near = topology.nics_near(gpu)
    return (
        str(topology.numa.get(gpu, "")),
        f"{f'gen {generation}' if generation else ''}{f' x{lanes}' if lanes else ''}".strip(),
        "" if up is None else f"{up} x {rate / 1e9:.4g} GB/s" if rate else str(up),
        f"{_nic_names(near)} ({near[0].pcie[gpu]})" if near else "",
    )


def _nic_names(nics: Sequence[Nic]) -> str:
    return ranges(sorted((nic.name for nic in nics), key=lambda name: (len(name), name)))


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    """Return aligned columns; the last one wraps."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    widths = [min(width, 40) for width in widths]
    indent = " " * (2 + sum(width + 2 for width in widths))
    lines = []
    for *cells, last in rows:
        front = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        first = f"  {front}  " if widths else "  "
        lines.append(fill(last, WIDTH, initial_indent=first, subsequent_indent=indent).rstrip())
    return "\n".join((title, *lines))


def _peer_to_peer(topology: Topology) -> str:
    read: Mapping[Pair, bool] = topology.peer_to_peer
    works = [pair for pair, can in read.items() if can]
    if not read:
        return ""
    if len(works) in {0, len(read)}:
        return f"Peer-to-peer copies: {'all' if works else 'none'} of {len(read)} pairs"
    return f"Peer-to-peer copies: {len(works)} of {len(read)} pairs ({some_pairs(works)})"


def _findings(topology: Topology) -> str:
    lines = [
        fill(
            f"{finding.code}  {finding.message}",
            WIDTH,
            initial_indent="  ",
            subsequent_indent=" " * 10,
        )
        for finding in topology.findings
    ]
    return "\n".join(("Findings (planner explain CODE says more)", *lines)) if lines else ""
