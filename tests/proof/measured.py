"""What was measured, as data/measurements has it: a table of steps, and the machine file of each wire."""

import json
import platform
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from proof.jobs import RUNS
from proof.judge import Judged, predicted
from proof.wires import WIRES, Wire

FOLDER = Path(__file__).parents[2] / "data" / "measurements"
TABLE = FOLDER / "cpu_proof.toml"
RACES = FOLDER / "cpu_races.toml"
RACE = "race"
"""The job of a line of races.jsonl that is of no single layout."""
_HEAD = """\
# Written files run on two cores of one machine, each standing for an accelerator, one thread each, over loopback and
# between two network namespaces whose cable `tc` limits (tbf): `make proof`. `step_s` is the median of the repetitions'
# mean steps, the first step left out, `low_s` and `high_s` the fastest and slowest repetition; of local SGD a mean over
# as many steps as it averages after. The machine files, of the same minutes, are cpu_proof_<wire>.json.
"""
_HEAD_OF_RACES = """\
# Layouts of `make proof` on one node of two ranks, whose loopback `tc` limits to the wire's rate each way (htb and tbf):
# `python -m proof.race`. A race is of the plans whose order is in doubt, by the machine file of the wire; a run is of one
# layout until its median step is known to 2 %, or for 15 seconds, and those within 10 % of the fastest have three turns.
# Seconds are whole, with the starts; `step_s` is the median.
"""
_RACE_COLUMNS = ("wire", "model", "raced", "winner", "race_s")
_RUN_COLUMNS = ("wire", "model", "layout", "turn", "run_s", "steps", "step_s")
_COLUMNS = ("wire", "model", "layout", "repetitions", "step_s", "low_s", "high_s")


def machine_name(wire: Wire) -> str:
    """Return what the machine file of a wire is called among the measurements."""
    return f"cpu_proof_{wire.name.replace('-', '_')}.json"


def write_measured(folder: Path) -> None:
    """Write the table of what is done, and the machine files."""
    steps = steps_of(folder / "done.jsonl")
    rows = [
        [run.wire.name, run.subject.name, run.layout, len(each), *_figures(each)]
        for run in RUNS
        if (each := steps.get(run.name))
    ]
    text = "".join(f"  {json.dumps(row)},\n" for row in rows)
    columns = json.dumps(list(_COLUMNS))
    head = f"{_HEAD}source = {json.dumps(_source())}\n"
    TABLE.write_text(f"{head}columns = {columns}\nrows = [\n{text}]\n")
    for wire in WIRES:
        file = folder / f"machine-{wire.name}.json"
        if file.exists():
            (FOLDER / machine_name(wire)).write_text(file.read_text())


def steps_of(file: Path) -> Mapping[str, list[float]]:
    """Return the mean seconds of a step, by run, of each repetition."""
    by_name = {run.name: run for run in RUNS}
    found: dict[str, list[float]] = {}
    for line in file.read_text().splitlines():
        each = json.loads(line)
        if each["plan"] in by_name:
            step = by_name[each["plan"]].mean_step(each["seconds"])
            found.setdefault(each["plan"], []).append(step)
    return found


def write_races(file: Path) -> None:
    """Write what races and runs to the end took and showed, beside those of other wires and models written before."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    again, before = {(line["wire"], line["model"]) for line in lines}, _written_races()
    races, runs = (
        [row for row in before.get(f"{name}_rows", ()) if (*row[:2],) not in again]
        for name in ("race", "run")
    )
    for line in sorted(lines, key=_place):
        place, took = [line["wire"], line["model"]], round(line["seconds"], 1)
        timed = [each for each in line["plans"] if each["step"]]
        if line["job"] == RACE:
            best = min(timed, key=lambda each: each["step"][1])
            races.append([*place, len(line["plans"]), best["layout"], took])
        for each in timed if line["job"] != RACE else ():
            found = [each["layout"], line["turn"], took, each["steps"], round(each["step"][1], 4)]
            runs.append([*place, *found])
    text = f"{_HEAD_OF_RACES}source = {json.dumps(_source())}\n"
    for name, columns, rows in (("race", _RACE_COLUMNS, races), ("run", _RUN_COLUMNS, runs)):
        text += f"{name}_columns = {json.dumps(list(columns))}\n{name}_rows = [\n"
        text += "".join(f"  {json.dumps(row)},\n" for row in rows) + "]\n"
    RACES.write_text(text)


def _written_races() -> dict[str, Any]:
    return tomllib.loads(RACES.read_text()) if RACES.exists() else {}


def steps_of_layouts(lines: Iterable[Mapping[str, Any]]) -> Mapping[str, float]:
    """Return the median step of each layout that took one, of the turns that it had."""
    found: dict[str, list[float]] = {}
    for line in lines:
        for each in line["plans"] if line["job"] != RACE else ():
            if each["step"]:
                found.setdefault(each["layout"], []).append(each["step"][1])
    return {name: median(turns) for name, turns in found.items()}


def _place(line: Mapping[str, Any]) -> tuple[int, int]:
    """Return where a line stands among all layouts, and its turn: a race before the runs of its model."""
    places = [(run.wire.name, run.subject.name, run.layout) for run in RUNS]
    wanted = (line["wire"], line["model"])
    number = next(
        number
        for number, place in enumerate(places)
        if place[:2] == wanted and line["job"] in {RACE, place[2]}
    )
    return number, line["turn"]


@dataclass(frozen=True, slots=True)
class Raced:
    """A race of some layouts of a model over a wire, beside runs of all of them to the end."""

    wire: str
    model: str
    raced: int
    winner: str
    seconds: float
    steps: Mapping[str, Mapping[int, float]]
    """By layout and turn."""
    seconds_of_all: float
    """Of one turn of each."""

    @property
    def fastest(self) -> str:
        """Return the layout that the winner is furthest behind, the winner where it is behind none."""
        return max((self.winner, *self.steps), key=self._behind)

    @property
    def behind(self) -> float:
        """Return by which share the winner's step is longer than the fastest's."""
        return self._behind(self.fastest)

    def _behind(self, other: str) -> float:
        """Return by which share the winner's step is longer, in the median of the turns of both: a slow minute is of both."""
        own, theirs = self.steps[self.winner], self.steps[other]
        return median(own[turn] / theirs[turn] for turn in own if turn in theirs) - 1


def raced() -> Iterator[Raced]:
    """Yield the races that were measured."""
    found = _written_races()
    for wire, model, number, winner, seconds in found.get("race_rows", ()):
        runs = [row[2:] for row in found["run_rows"] if row[:2] == [wire, model]]
        steps: dict[str, dict[int, float]] = {}
        for name, turn, *_, step in runs:
            steps.setdefault(name, {})[turn] = step
        once = sum(row[2] for row in runs if row[1] == 1)
        yield Raced(wire, model, number, winner, seconds, steps, once)


def _figures(seconds: list[float]) -> list[float]:
    return [round(figure, 4) for figure in (median(seconds), min(seconds), max(seconds))]


def _source() -> str:
    """Return what was measured, when and with what, in words."""
    day = datetime.now(UTC).date().isoformat()
    versions = f"PyTorch {version('torch')}, transformers {version('transformers')}"
    return f"measured by this project, {day}: two cores of {_processor()}, Linux; {versions}, gloo"


def _processor() -> str:
    """Return the name of the processor, as Linux has it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def table() -> Mapping[str, Any]:
    """Return the table as it was written; empty where nothing was."""
    return tomllib.loads(TABLE.read_text()) if TABLE.exists() else {}


def judged() -> Iterator[Judged]:
    """Yield every run of the table with what the machine file of its wire has the planner say."""
    found = table()
    rows = {
        (row[0], row[1], row[2]): dict(zip(found["columns"], row, strict=True))
        for row in found.get("rows", ())
    }
    machines = {
        wire: json.loads((FOLDER / machine_name(wire)).read_text())
        for wire in WIRES
        if any(wire.name == key[0] for key in rows)
    }
    for run in RUNS:
        row = rows.get((run.wire.name, run.subject.name, run.layout))
        if row:
            yield Judged(run, row["step_s"], predicted(run, machines[run.wire]))
