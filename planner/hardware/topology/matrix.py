"""The matrix that `nvidia-smi topo -m` prints -> how each pair of GPUs is connected."""

import re
from collections.abc import Iterator, Mapping

from planner.core.frozen import frozen
from planner.domain.topology import MOST_LINKS, Nic, Pair, Topology, TopologyFinding
from planner.hardware.topology.refusal import refusal
from planner.hardware.topology.table import MatrixRow, MatrixTable
from planner.hardware.topology.words import rows, was

_LINKS = re.compile(r"NV([1-9][0-9]?)$")
_CLASSES = {"PIX": "PIX", "PXB": "PXB", "PHB": "PHB", "NODE": "NODE", "SYS": "SYS", "SOC": "SYS"}
"""What is printed and what it means; SOC is what drivers before 2017 say."""
_FIRST_NODE = re.compile(r"([0-9]{1,4})(?:$|[-,])")


@frozen
class MatrixText:
    """A matrix as it was printed: what was there of it, and what was not."""

    num_gpus: int
    nic_names: tuple[str, ...]
    """Of the columns, before the legend is applied."""
    rows: Mapping[str, MatrixRow]
    missing_rows: tuple[str, ...]
    short_rows: Mapping[str, int]
    """How many cells are left of each row that was cut in the middle."""


def read_text(table: MatrixTable) -> MatrixText:
    """Return the rows of a matrix, with columns that are neither GPUs nor adapters left out.

    Raises:
        InvalidInputError: a column holds PCIe classes in some rows and other things in others.
    """
    nics = [
        column
        for column, name in enumerate(table.others, start=table.num_gpus)
        if _is_nic(table, column, name)
    ]
    columns = [*range(table.num_gpus), *nics]
    names = tuple(table.others[column - table.num_gpus] for column in nics)
    labels = (*table.labels[: table.num_gpus], *names)
    kept_rows = {
        label: MatrixRow(
            number=row.number,
            cells=tuple(row.cells[column] for column in columns if column < len(row.cells)),
            tail=row.tail,
        )
        for label in labels
        if (row := table.rows.get(label))
    }
    return MatrixText(
        num_gpus=table.num_gpus,
        nic_names=names,
        rows=kept_rows,
        missing_rows=tuple(label for label in labels if label not in kept_rows),
        short_rows={
            label: len(row.cells)
            for label, row in kept_rows.items()
            if len(row.cells) < len(columns)
        },
    )


def _is_nic(table: MatrixTable, column: int, name: str) -> bool:
    """Return whether GPU rows hold PCIe classes in this column; refuse one that cannot decide."""
    gpus = [table.rows[gpu] for gpu in table.labels[: table.num_gpus] if gpu in table.rows]
    cells = [(row.number, row.cells[column]) for row in gpus if column < len(row.cells)]
    strange = [(number, cell) for number, cell in cells if cell and cell not in _CLASSES]
    if not strange:
        return True
    if any(cell in _CLASSES for _, cell in cells):
        number, cell = strange[0]
        raise refusal(f"line {number}: cannot read {cell[:20]!r} under {name[:20]}")
    return False


def read_matrix(table: MatrixTable) -> Topology:
    """Return what a matrix says about its GPUs and network adapters.

    The matrix is symmetric, so a pair is known as soon as one of its two cells is there.

    Raises:
        InvalidInputError: a cell cannot be read, two cells of a pair disagree, or not a single
            pair is left.
    """
    text = read_text(table)
    nvlink: dict[Pair, int] = {}
    pcie: dict[Pair, str] = {}
    for pair, cell in _pairs(text):
        links = _LINKS.match(cell)
        if links and int(links[1]) <= MOST_LINKS:
            nvlink[pair] = int(links[1])
        else:
            pcie[pair] = _CLASSES[cell]
    if text.num_gpus > 1 and not nvlink and not pcie:
        raise refusal(
            f"the topology has {len(text.rows)} rows for {text.num_gpus} GPUs,"
            " and the connection of no two GPUs in them"
        )
    return Topology(
        num_gpus=text.num_gpus,
        nvlink=nvlink,
        pcie=pcie,
        nics=_nics(text, table.nic_legend),
        numa=_numa(text, table.tail),
        findings=(*_cut(text), *_hidden(table, nvlink)),
    )


def _pairs(text: MatrixText) -> Iterator[tuple[Pair, str]]:
    """Yield the cell of each pair that has one."""
    read = {
        (int(label[3:]), column): (row.number, cell)
        for label, row in text.rows.items()
        if label not in text.nic_names
        for column, cell in enumerate(row.cells[: text.num_gpus])
        if cell
    }
    for (gpu, column), (number, cell) in read.items():
        if gpu == column and cell != "X":
            raise refusal(f"line {number}: GPU{gpu} reads {cell[:20]!r} to itself, not X")
        if gpu != column and not _is_connection(cell):
            wrong = f"line {number}: cannot read {cell[:20]!r} between GPU{gpu} and GPU{column}"
            raise refusal(wrong)
        mirrored = read.get((column, gpu), (number, cell))
        if _CLASSES.get(cell, cell) != _CLASSES.get(mirrored[1], mirrored[1]):
            raise refusal(
                f"lines {number} and {mirrored[0]}: GPU{gpu}-GPU{column} reads"
                f" {cell[:20]!r} and {mirrored[1][:20]!r}"
            )
        if gpu < column or (gpu != column and (column, gpu) not in read):
            yield (min(gpu, column), max(gpu, column)), cell


def _is_connection(cell: str) -> bool:
    links = _LINKS.match(cell)
    return cell in _CLASSES or bool(links and int(links[1]) <= MOST_LINKS)


def _nics(text: MatrixText, legend: Mapping[str, str]) -> tuple[Nic, ...]:
    return tuple(
        Nic(name=legend.get(name, name)[:64], pcie=_classes_of(text, name, column))
        for column, name in enumerate(text.nic_names, start=text.num_gpus)
    )


def _classes_of(text: MatrixText, name: str, column: int) -> dict[int, str]:
    own = text.rows[name].cells if name in text.rows else ()
    classes = {}
    for gpu in range(text.num_gpus):
        row = text.rows.get(f"GPU{gpu}")
        there = row.cells[column] if row and column < len(row.cells) else None
        cell = there or (own[gpu] if gpu < len(own) else None)
        if cell in _CLASSES:
            classes[gpu] = _CLASSES[cell]
    return classes


def _numa(text: MatrixText, tail: tuple[str, ...]) -> dict[int, int]:
    """Return the first node of each GPU's NUMA affinity, where the driver knows it."""
    names = [name.split()[0] for name in tail]
    if "NUMA" not in names:
        return {}
    before = names.index("NUMA")
    nodes = {}
    for gpu in range(text.num_gpus):
        row = text.rows.get(f"GPU{gpu}")
        rest = row.tail[before:] if row else ()
        # The driver puts one or two tabs before a node: the first word counts, if all are there.
        words = [word for word in rest if word]
        word = words[0] if len(words) >= len(tail) - before else next(iter(rest), "")
        if node := _FIRST_NODE.match(word):
            nodes[gpu] = int(node[1])
    return nodes


def _cut(text: MatrixText) -> Iterator[TopologyFinding]:
    """Yield what was cut off and from what it was rebuilt."""
    gpus = [f"GPU{gpu}" for gpu in range(text.num_gpus)]
    cut_rows = rows([gpu for gpu in gpus if gpu in text.rows])
    if cut := text.missing_rows:
        rebuilt = (
            f"what is known of {'it' if len(cut) == 1 else 'them'} was rebuilt"
            if set(gpus) & set(cut)
            else "how adapters reach GPUs was read"
        )
        yield TopologyFinding(
            code="TOP001",
            message=f"{rows(cut)} {was(cut)} cut; {rebuilt} from the columns of {cut_rows}",
        )
    if short := tuple(text.short_rows):
        yield TopologyFinding(
            code="TOP001",
            message=f"{rows(short)} {was(short)} cut short; the cells beyond were rebuilt from the"
            " other rows as far as these go",
        )


def _hidden(table: MatrixTable, nvlink: Mapping[Pair, int]) -> Iterator[TopologyFinding]:
    """Yield that NVLink was hidden: `-mp` was typed, or its legend leaves NV# out."""
    is_legend_whole = {"X", "SYS", "PIX"} <= table.legend
    asked = re.search(r"topo\s+-mp\b|--matrix-pci", table.title)
    if not nvlink and (asked or (is_legend_whole and "NV#" not in table.legend)):
        yield TopologyFinding(
            code="TOP003",
            message=f"`nvidia-smi topo -mp` hides NVLink: the {table.num_gpus} GPUs may be"
            " joined by it all the same; paste `nvidia-smi topo -m`",
        )
