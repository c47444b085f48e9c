"""Race the layouts of each wire and model, and run each to the end, the close ones three times: `python -m proof.race`, as root.

What is done is not done again: each race and each layout is a line of races.jsonl in --folder; nor what
data/measurements has.
"""

import argparse
import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from planner.machine.document import Machine
from planner.machine.reading import read_machine
from planner.machine.writing import write_machine
from planner.race.entrants import Entrant, entrants_of_folder
from planner.race.heat import Limits, run_once
from planner.race.odds import FEWEST, interval, is_open
from planner.race.rounds import FAILED, OPEN, Race, Standing, run_all
from planner.race.ways import Here
from proof.__main__ import PLANNER, lines_of
from proof.jobs import LOCAL, RUNS, SUBJECTS, Run, write_models
from proof.measured import FOLDER, RACE, machine_name, raced, steps_of_layouts, write_races
from proof.wires import WIRES, environment, move_to

_MOST = 4
_BUDGET_SECONDS = 600.0
"""What `planner race` has where nothing else is said."""
_LONGEST_RUN = 15.0
"""Seconds, or that of as many steps as tell something of a median: a layout that is run alone ends then."""
_LONGEST_START = 120.0
_TURNS = 3
"""Of the layouts that may be the fastest: two starts of the same files differ."""
_CLOSE = 1.1
"""Times the fastest's step: others have one turn."""


def main(words: Sequence[str] | None = None) -> None:
    """Do what is left to do, and write down what was measured."""
    args = _arguments(words)
    write_models(args.folder / "models")
    os.environ.update(environment("lo"))
    wanted = [run for run in RUNS if run.wire.name in args.wires and run.layout not in LOCAL]
    written = {(each.wire, each.model) for each in raced()}
    for wire, found in groupby(wanted, key=lambda run: run.wire):
        runs = list(found)
        _write_plans(args.folder, runs)
        move_to(wire)
        for subject in args.subjects:
            if (wire.name, subject) in written:
                continue
            plans = args.folder / "races" / wire.name / subject
            _race_and_run(plans, args.folder / "races.jsonl")
    if args.write:
        write_races(args.folder / "races.jsonl")


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m proof.race", description=(__doc__ or "").partition("\n")[0]
    )
    add = parser.add_argument
    add("--folder", type=Path, default=Path("build/proof"), help="of what is done already")
    add("--wires", nargs="+", default=[wire.name for wire in reversed(WIRES)])
    add("--subjects", nargs="+", default=[subject.name for subject in SUBJECTS])
    add("--write", action="store_true", help="write data/measurements of it")
    args = parser.parse_args(words)
    args.folder = args.folder.resolve()
    args.folder.mkdir(parents=True, exist_ok=True)
    return args


def _write_plans(folder: Path, runs: Sequence[Run]) -> None:
    """Write the launch files of each layout for one node of two ranks, by the machine file of its wire."""
    wire = runs[0].wire
    machine = folder / f"node-{wire.name}.json"
    write_machine(_of_one_node(read_machine(FOLDER / machine_name(wire))), machine)
    batch, where = folder / "races.batch", folder / "races" / wire.name
    for subject, found in groupby(runs, key=lambda run: run.subject.name):
        left = [run for run in found if not (where / subject / run.layout).exists()]
        batch.write_text("".join(map(_request, left, repeat(folder / "models"))))
        words = ["suggest", "--batch", str(batch), "--machine", str(machine)]
        words += ["--out", str(where / subject)]
        if left:
            subprocess.run([*PLANNER, *words], check=True, stdout=subprocess.DEVNULL)


def _request(run: Run, models: Path) -> str:
    """Return a line that asks for the files of a layout on one node."""
    said = run.request(models, nodes=1)
    said["recipe"]["framework"] = "torch"
    return json.dumps({**said, "id": run.layout, "files": {"targets": ["torchrun"]}}) + "\n"


def _of_one_node(machine: Machine) -> Machine:
    """Return a machine whose two ranks are in one node: `planner race` runs on one."""
    node = replace(machine.cluster, gpus_per_node=2, nodes=1)
    curves = tuple(replace(each, nodes=1) for each in machine.collectives)
    return replace(machine, cluster=node, collectives=curves)


def _race_and_run(plans: Path, done: Path) -> None:
    """Race the plans whose order is in doubt, then run each alone, and the close ones in turns."""
    place = {"wire": plans.parent.name, "model": plans.name}
    with TemporaryDirectory() as scratch:
        every = entrants_of_folder(str(plans), 99, Path(scratch))
    fastest = every[0].planned.step_seconds.likely
    open_ones = [
        each for each in every if is_open("torch", fastest, each.planned.step_seconds.likely)
    ]
    race = Race(budget_seconds=_BUDGET_SECONDS, way=Here(on_cpus=True))
    _time(lambda: run_all(open_ones[:_MOST], race), {**place, "job": RACE, "turn": 1}, done)
    close: Sequence[Entrant] = every
    for turn in range(1, _TURNS + 1):
        for each in close if len(close) > 1 else ():
            job = {**place, "job": each.name, "turn": turn}
            _time(partial(_run_alone, each), job, done)
        steps = steps_of_layouts(each for each in lines_of(done) if place.items() <= each.items())
        near = _CLOSE * min(steps.values())
        close = [each for each in every if steps.get(each.name, math.inf) <= near]


def _run_alone(entrant: Entrant) -> tuple[Sequence[Standing], bool]:
    """Run a layout until its median is known, or its time is over."""
    longest = max(_LONGEST_RUN, (1 + FEWEST) * entrant.planned.step_seconds.likely)
    limits = Limits(start_seconds=_LONGEST_START, seconds=longest, step_seconds=longest)
    heat = run_once(
        entrant,
        limits,
        lambda seconds: interval(seconds).is_known,
        Here(on_cpus=True),
        lambda _why: None,
    )
    standing = Standing(
        entrant=entrant,
        starts=[heat.seconds] if heat.seconds else [],
        state=FAILED if heat.why else OPEN,
        why=heat.why,
    )
    return [standing], heat.is_stopped


def _time(
    run: Callable[[], tuple[Sequence[Standing], bool]], said: dict[str, Any], done: Path
) -> None:
    """Run some plans, and write down what it took and showed; what failed is written down too."""
    if any(said.items() <= each.items() for each in lines_of(done)):
        return
    begun = time.monotonic()
    standings, is_stopped = run()
    taken = time.monotonic() - begun
    if is_stopped:
        raise SystemExit(f"{said}: stopped")
    line = {**said, "seconds": taken, "plans": [_shown(each) for each in standings]}
    print(json.dumps(line), flush=True)
    with done.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _shown(standing: Standing) -> dict[str, Any]:
    step = standing.step
    return {
        "layout": standing.entrant.name,
        "planned": standing.entrant.planned.step_seconds.likely,
        "state": standing.state,
        "why": standing.why,
        "starts": len(standing.starts),
        "steps": len(standing.seconds),
        "step": [step.low, step.median, step.high if step.low else None] if step else None,
    }


if __name__ == "__main__":
    main()
