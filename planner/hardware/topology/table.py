"""The square tables of a paste: a header of GPUs, and rows that begin with a GPU's name.

`nvidia-smi topo` and `rocm-smi --showtopo` print the same shape, with different words in the cells.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from planner.core.frozen import frozen
from planner.domain.topology import MOST_GPUS
from planner.hardware.topology.clean import Line
from planner.hardware.topology.refusal import refusal

_GPU = re.compile(r"GPU[0-9]+$")
_COLUMN = re.compile(r"CPU(?:\s{1,3}Affinity)?\b|(?:NUMA\s{1,3}Affinity|GPU\s{1,3}NUMA.{0,3})|\S+")
_TAIL = ("CPU", "NUMA", "GPU NUMA")
_TITLE = re.compile(r"\btopo(?:logy)?\s+-|between two GPUs", re.IGNORECASE)
_ANY_WORD = re.compile(r"(X|NV[0-9]{1,3}|PIX|PXB|PHB|NODE|SYS|SOC|OK|[CGT]?NS|DR|U)$")
_ANY_ROCM_WORD = re.compile(r"([0-9]{1,4}|XGMI|PCIE|True|False|N/A)$")
_LEGEND = re.compile(r"\s*([A-Z]{1,4}#?)\s{1,8}=\s")
_NIC_LEGEND = re.compile(r"\s*(NIC[0-9]{1,4})\s{0,4}:\s{0,4}([!-~]{1,64})\s*$")
_ALIGNED = 3
"""Characters between a cell and the start of its column: `X` is centred, tabs were expanded."""


@frozen
class MatrixColumn:
    """A column's name and where in the header line it starts."""

    name: str
    start: int


@frozen
class MatrixRow:
    """The cells of one row as they stand; None where one was blank, fewer where it was cut."""

    number: int
    cells: tuple[str | None, ...]
    tail: tuple[str, ...]
    """What follows the square: affinities, with the blank ones where tabs or positions show them."""


@frozen
class MatrixTable:
    """A square table: `num_gpus` columns of GPUs, then columns of adapters, then affinities."""

    title: str
    """The command or heading above it, or ""."""
    num_gpus: int
    others: tuple[str, ...]
    """Names of the columns after the GPUs', up to the affinities."""
    tail: tuple[str, ...]
    """`CPU`, `NUMA`, `GPU NUMA`: the affinity columns, as far as there are any."""
    rows: Mapping[str, MatrixRow]
    legend: frozenset[str]
    """The words that the legend below explains."""
    nic_legend: Mapping[str, str]

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the names of the rows that there should be."""
        return (*(f"GPU{gpu}" for gpu in range(self.num_gpus)), *self.others)

    @property
    def words(self) -> set[str]:
        """Return all that stands in the cells of GPU rows under GPUs."""
        rows = (self.rows[label] for label in self.labels[: self.num_gpus] if label in self.rows)
        return {cell for row in rows for cell in row.cells[: self.num_gpus] if cell}

    @property
    def is_rocm(self) -> bool:
        """Return whether rocm-smi printed it."""
        return "between two gpus" in self.title.lower()


def find_tables(lines: Iterable[Line]) -> tuple[MatrixTable, ...]:
    """Return the tables in the order of the paste.

    Raises:
        InvalidInputError: a header or a row of one cannot be read; says which line.
    """
    tables: list[_Draft] = []
    title = ""
    for line in lines:
        if _is_header(line.tokens):
            tables.append(_Draft(line, title))
            title = ""
        elif _TITLE.search(line.text[:200]):
            title = line.text[:200].strip()
        elif tables:
            tables[-1].read(line)
    return tuple(table.finished() for table in tables)


def _is_header(tokens: tuple[str, ...]) -> bool:
    if tokens[0] != "GPU0":  # columns in another order: no row names two GPUs
        return "GPU0" in tokens and all(_GPU.match(token) for token in tokens[:2])
    if len(tokens) == 1:
        return True
    second = tokens[1]
    is_cell = _ANY_WORD.match(second) or second[0].isdigit()
    return second in {"CPU", "NUMA", "GPU"} or (second[-1].isdigit() and not is_cell)


class _Draft:
    """A table whose rows are still being read."""

    def __init__(self, header: Line, title: str) -> None:
        columns = [
            MatrixColumn(name=" ".join(match[0].split()), start=match.start())
            for match in _COLUMN.finditer(header.text.expandtabs())
        ]
        first_tail = next(
            (i for i, column in enumerate(columns) if column.name.startswith(_TAIL)), len(columns)
        )
        self.title = title
        self.columns = columns[:first_tail]
        self.tail = [column for column in columns[first_tail:] if column.name.startswith(_TAIL)]
        self.gpu_columns = _gpu_columns([column.name for column in self.columns], header.number)
        self.num_gpus = len(self.gpu_columns)
        self.labels = {column.name for column in self.columns}
        if len(self.labels) < len(self.columns):
            raise refusal(f"line {header.number}: the header names a column twice")
        self.rows: dict[str, MatrixRow] = {}
        self.legend: set[str] = set()
        self.nic_legend: dict[str, str] = {}

    def read(self, line: Line) -> None:
        """Take a row or a line of the legend; anything else is not part of the table."""
        label = line.tokens[0]
        if label in self.labels or _GPU.match(label):
            self._read_row(label, line)
        elif match := _LEGEND.match(line.text):
            self.legend.add(match[1])
        elif match := _NIC_LEGEND.match(line.text):
            self.nic_legend[match[1]] = match[2]

    def _read_row(self, label: str, line: Line) -> None:
        is_rocm = "between two gpus" in self.title.lower()
        if not any(_is_cell(token, is_rocm=is_rocm) for token in line.tokens[1:]):
            return
        if label not in self.labels:
            raise refusal(
                f"line {line.number}: a row of {label[:20]},"
                f" but the header ends at GPU{self.num_gpus - 1}"
            )
        row = self._split(line, is_rocm=is_rocm)
        if self.rows.get(label, row).cells != row.cells:
            raise refusal(
                f"line {line.number}: another row of {label[:20]}, unlike"
                f" line {self.rows[label].number}"
            )
        self.rows.setdefault(label, row)

    def _split(self, line: Line, *, is_rocm: bool) -> MatrixRow:
        """Return a row's cells: by their tabs, by their order, or by where they stand."""
        label = line.tokens[0]
        width = len(self.columns)
        words = line.tokens[1:]
        read = 0
        while read < min(width, len(words)) and _is_cell(words[read], is_rocm=is_rocm):
            read += 1
        fields = _fields(line.text, label) if "\t" in line.text else []
        if fields and (all(fields[:width]) or read < width):
            return _row(line, fields[:width], fields[width:])
        starts = _starts(line.text)
        if read < self.num_gpus and (places := self._places(starts)):
            cells = dict(zip(places, words, strict=True))
            last = max((place for place in places if place < width), default=-1)
            in_square = [cells.get(place) for place in range(last + 1)]
            tail = [cells.get(place, "") for place in range(width, max(places) + 1)]
            return _row(line, in_square, tail)
        # As many words as GPUs: the strange one is a cell, and who reads it refuses it by name.
        if read < self.num_gpus and read < len(words) and len(words) >= self.num_gpus:
            read = self.num_gpus
        if read < self.num_gpus and read < len(words):
            raise refusal(
                f"line {line.number}: {read} cells for {self.num_gpus} GPUs,"
                f" then {words[read][:20]!r}"
            )
        tail = list(words[width:])
        if self._is_cpu_blank(starts, len(tail)):
            tail.insert(0, "")
        return _row(line, words[:width], tail)

    def _places(self, starts: list[int]) -> list[int] | None:
        """Return which column each word stands under, or None where the columns do not line up."""
        columns = [column.start for column in (*self.columns, *self.tail)]
        if columns[0] <= starts[0]:
            return None
        places = [
            min(range(len(columns)), key=lambda i: abs(columns[i] - start)) for start in starts[1:]
        ]
        is_aligned = all(
            abs(columns[place] - start) <= _ALIGNED
            for place, start in zip(places, starts[1:], strict=True)
        )
        return places if is_aligned and len(set(places)) == len(places) else None

    def _is_cpu_blank(self, starts: list[int], num_tail: int) -> bool:
        if not 0 < num_tail < len(self.tail) or self.tail[0].name[:3] != "CPU":
            return False
        is_aligned = abs(starts[1] - self.columns[0].start) <= _ALIGNED
        return is_aligned and starts[-num_tail] > self.tail[0].start + _ALIGNED

    def _by_number(self) -> dict[str, MatrixRow]:
        """Return the rows with GPU0's column first, whatever order the header has."""
        order = self.gpu_columns
        if order == sorted(order):
            return self.rows
        rows = {}
        for label, row in self.rows.items():
            square = [row.cells[at] if at < len(row.cells) else None for at in order]
            rows[label] = replace(row, cells=(*square, *row.cells[self.num_gpus :]))
        return rows

    def finished(self) -> MatrixTable:
        """Return the table as far as it was there."""
        return MatrixTable(
            title=self.title,
            num_gpus=self.num_gpus,
            others=tuple(column.name for column in self.columns[self.num_gpus :]),
            tail=tuple(column.name for column in self.tail),
            rows=self._by_number(),
            legend=frozenset(self.legend),
            nic_legend=self.nic_legend,
        )


def _row(line: Line, cells: Iterable[str | None], tail: Iterable[str]) -> MatrixRow:
    return MatrixRow(
        number=line.number, cells=tuple(cell or None for cell in cells), tail=tuple(tail)
    )


def _gpu_columns(names: list[str], number: int) -> list[int]:
    gpus = [name for name in names if _GPU.match(name)]
    if len(gpus) > MOST_GPUS:
        raise refusal(f"line {number}: {len(gpus)} GPUs; a node has at most {MOST_GPUS}")
    numbered = [f"GPU{index}" for index in range(len(gpus))]
    if gpus != names[: len(gpus)] or set(gpus) != set(numbered):
        raise refusal(f"line {number}: the GPUs are not numbered GPU0, GPU1, ...")
    return [gpus.index(name) for name in numbered]


def _is_cell(word: str, *, is_rocm: bool) -> bool:
    return bool((_ANY_ROCM_WORD if is_rocm else _ANY_WORD).match(word))


def _fields(text: str, label: str) -> list[str]:
    """Return what stands between the tabs after the label; "" for nothing."""
    after = text[text.index(label) + len(label) :]
    fields = [field for part in after.split("\t") for field in (part.split() or [""])]
    return fields[1:] if after.startswith(("\t", " \t")) else fields


def _starts(text: str) -> list[int]:
    return [match.start() for match in re.finditer(r"\S+", text.expandtabs())]
