"""Measure this machine, plan, train and compare: `make proof`, or a part of it with --wires and --subjects.

What is done is not done again: each machine file, and each training as a line of done.jsonl, lie in --folder.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from proof.jobs import ANCHORS, REPETITIONS, RUNS, SUBJECTS, Run, write_models
from proof.judge import predicted, repetitions
from proof.measured import write_measured
from proof.wires import WIRES, Wire, address, can_be_laid, laid, meeting, run_on

HERE = Path(__file__).parent
PLANNER = (sys.executable, "-c", "from planner.cli import main; main()")
_LONGEST_SECONDS = 1500.0


def main(words: Sequence[str] | None = None) -> None:
    """Do what is left to do, and write down what was measured."""
    args = _arguments(words)
    if any(wire.rate for wire in WIRES if wire.name in args.wires) and not can_be_laid():
        raise SystemExit("two nodes need root, ip and tc; --wires loopback runs without")
    args.folder.mkdir(parents=True, exist_ok=True)
    write_models(args.folder / "models")
    started = time.monotonic()
    for wire in (wire for wire in WIRES if wire.name in args.wires):
        runs = [run for run in RUNS if run.wire == wire and run.subject.name in args.subjects]
        if args.layouts:
            runs = [run for run in runs if run.layout in args.layouts]
        with laid(wire) as nodes:
            if not machine_file(args.folder, wire).exists():
                _calibrate(args, wire, nodes)
                if not args.without_anchors:
                    _anchor(args, wire, nodes)
            _train(args.folder, runs, nodes, args.repetitions)
        _say(f"{wire.name}: done after {time.monotonic() - started:.0f} s")
    if args.write:
        write_measured(args.folder)
        _say("wrote data/measurements/cpu_proof.toml")


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make proof", description=(__doc__ or "").partition("\n")[0]
    )
    add = parser.add_argument
    add("--folder", type=Path, default=Path("build/proof"), help="of what is done already")
    add("--wires", nargs="+", default=[wire.name for wire in WIRES])
    add("--subjects", nargs="+", default=[subject.name for subject in SUBJECTS])
    add("--layouts", nargs="+", help="default: all")
    add("--repetitions", type=int, default=REPETITIONS)
    add("--budget", type=float, default=60.0, help="seconds to measure each machine in")
    add("--without-anchors", action="store_true", help="add no real steps to the machine")
    add("--write", action="store_true", help="write data/measurements of it")
    args = parser.parse_args(words)
    args.folder = args.folder.resolve()
    return args


def machine_file(folder: Path, wire: Wire) -> Path:
    """Return where the machine file of a wire is."""
    return folder / f"machine-{wire.name}.json"


def _calibrate(args: argparse.Namespace, wire: Wire, nodes: Sequence[str]) -> None:
    """Write a machine file as a user would: one command, or on each node the line that it says."""
    folder, budget = args.folder, args.budget
    _say(f"{wire.name}: calibrating")
    file, measuring = machine_file(folder, wire), folder / f"measuring-{wire.name}"
    measuring.mkdir(exist_ok=True)
    words = ["calibrate", "--measure", "--no-step", "--cpu", "--name", f"cores-{wire.name}"]
    for name in args.subjects:
        words += ["--model", str(folder / "models" / name)]
    words += ["--budget", f"{budget:g}", "--gpus", str(2 // wire.nodes), "--nodes", str(wire.nodes)]
    seconds = budget + 300
    if not nodes:
        run_on([[*PLANNER, *words, "-o", str(file), "--force"]], nodes, measuring, seconds)
        return
    asked = subprocess.run(
        [*PLANNER, *words], cwd=measuring, check=False, capture_output=True, text=True
    )
    line = shlex.split(asked.stderr.split("hint: ")[-1].partition(";")[0])
    where = line.index("-m")
    lines = [
        [
            *line[:where],
            *("--rdzv_conf", f"is_host={int(number == 0)}", "--local_addr", address(number)),
            *line[where:],
        ]
        for number in range(len(nodes))
    ]
    said = [[word.replace("HOST", address(0)) for word in words] for words in lines]
    run_on(said, nodes, measuring, seconds)
    shutil.move(measuring / "machine.json", file)


def _anchor(args: argparse.Namespace, wire: Wire, nodes: Sequence[str]) -> None:
    """Add real steps of each model, of both cores together, to the machine file: with `planner calibrate --runs`."""
    folder, file = args.folder, machine_file(args.folder, wire)
    anchors = [each for each in ANCHORS if each.wire == wire and each.subject.name in args.subjects]
    done = folder / f"anchors-{wire.name}.jsonl"
    if not done.exists():
        _say(f"{wire.name}: anchors")
        _start(folder, [(anchor, 0) for anchor in anchors], nodes, done)
    runs = folder / f"anchor-runs-{wire.name}.jsonl"
    steps = {each["plan"]: median(each["seconds"][1:]) for each in lines_of(done)}
    timed = (
        {"request": anchor.request(), "step_seconds": steps[anchor.name]} for anchor in anchors
    )
    runs.write_text("".join(json.dumps(each) + "\n" for each in timed))
    words = ("calibrate", "--runs", str(runs), "--machine", str(file), "-o", str(file))
    subprocess.run([*PLANNER, *words], cwd=folder, check=True, stdout=sys.stderr)


def _train(folder: Path, runs: Sequence[Run], nodes: Sequence[str], most: int) -> None:
    """Write what is planned of every run, and train what is left of it, round after round."""
    wire = runs[0].wire
    machine = json.loads(machine_file(folder, wire).read_text())
    seconds = {run.name: predicted(run, machine) for run in runs}
    wanted = repetitions(runs, seconds, most)
    done = folder / "done.jsonl"
    known = {(each["plan"], each["round"]) for each in lines_of(done)}
    left = [
        (run, number)
        for number in range(most)
        for run in runs
        if number < wanted[run.name] and (run.name, number) not in known
    ]
    if not left:
        return
    expected = sum(run.steps * seconds[run.name] for run, _ in left)
    _say(f"{wire.name}: {len(left)} trainings, some {expected + 0.6 * len(left):.0f} s")
    _start(folder, left, nodes, done)


def _start(folder: Path, left: Sequence[tuple[Run, int]], nodes: Sequence[str], done: Path) -> None:
    """Write the plans that are not there yet, and train, each run with the number of its round; what is done goes to a file."""
    runs = {run.name: run for run, _ in left}
    wire, plans = left[0][0].wire, folder / "plans"
    _write_plans(folder, [run for run in runs.values() if not (plans / run.name).exists()], wire)
    file = folder / f"left-{wire.name}.jsonl"
    file.write_text("".join(_line(run, number) for run, number in left))
    program = [str(HERE / "trainings.py"), str(plans), str(file), str(done)]
    lines = [
        ["torchrun", *meeting(nodes, number), "--", *program]
        for number in range(max(1, len(nodes)))
    ]
    run_on(lines, nodes, folder, _LONGEST_SECONDS)


def _line(run: Run, number: int) -> str:
    """Return the line of a training that is to be done."""
    job = {"plan": run.name, "steps": run.steps, "round": number, "tokens": run.tokens}
    return json.dumps(job) + "\n"


def _write_plans(folder: Path, runs: Sequence[Run], wire: Wire) -> None:
    """Write the launch files of each run with `planner suggest`, every choice of the layout pinned."""
    if not runs:
        return
    batch = folder / "batch.jsonl"
    requests = (
        run.request(folder / "models", nodes=1 if run.is_refused else run.wire.nodes)
        | {"files": {"targets": ["torchrun"]}}
        for run in runs
    )
    batch.write_text("".join(json.dumps(each) + "\n" for each in requests))
    machine = machine_file(folder, wire)
    words = ["suggest", "--batch", str(batch), "--machine", str(machine), "--out", "plans"]
    done = subprocess.run(
        [*PLANNER, *words], cwd=folder, check=False, capture_output=True, text=True
    )
    for line, each in zip(done.stdout.splitlines(), runs, strict=True):
        answer = json.loads(line)
        if not (folder / "plans" / each.name / "torchrun" / "train.py").exists():
            raise SystemExit(f"{each.name} was not written: {json.dumps(answer)[:600]}")


def lines_of(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file that may not be there."""
    if file.exists():
        yield from map(json.loads, file.read_text().splitlines())


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
