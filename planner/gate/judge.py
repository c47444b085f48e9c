"""Files and what is wished of them -> verdicts; two files -> their differences."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import BinaryIO

from planner.configs.found import Setup
from planner.configs.meaning import named_files
from planner.configs.recognise import recognise
from planner.core.errors import InvalidInputError, NothingFitsError, PlannerError
from planner.core.frozen import frozen
from planner.gate.configurations import (
    COMMAND,
    Asked,
    is_configuration_file,
    judge_configurations,
    read_configuration,
)
from planner.gate.differences import Change, differences
from planner.gate.documents import Document, own_plan, read_document
from planner.gate.facts import Facts, one_line
from planner.gate.limits import GROWTH, Check, Limit, judge
from planner.gate.lock import check_lock
from planner.gate.verdict import Verdict, nothing_fits

BASELINE = "the baseline"
"""What stdin is called where something is compared with it."""


@frozen
class Wishes:
    """What a file is to hold."""

    limits: tuple[Limit, ...] = ()
    baseline: str | None = None
    """A file."""
    growth: float | None = GROWTH
    """By what fraction an amount without a limit may exceed the baseline's; None: by any."""
    is_locked: bool = False
    asked: Asked = field(default_factory=Asked)
    """What is known beside other tools' configurations."""
    command: str | None = None
    """A command line, in place of a script that holds it."""


def judge_files(files: Sequence[str], wishes: Wishes, stdin: BinaryIO) -> tuple[Verdict, ...]:
    """Return the verdict on each file.

    Raises:
        PlannerError: a file cannot be read, or a wish not be judged.
    """
    if wishes.baseline is not None and len(files) > 1:
        raise InvalidInputError(
            f"one baseline for {len(files)} files",
            hint="check each file with a baseline of its own",
            field="--baseline",
        )
    if [*files, wishes.baseline].count("-") > 1:
        raise InvalidInputError("- is stdin, and can be read once", hint="give files", field="FILE")
    configurations = [file for file in files if is_configuration_file(file)]
    plans = [file for file in files if file not in configurations]
    if not plans and (wishes.baseline is not None or wishes.is_locked):
        raise InvalidInputError(
            "a configuration has no baseline and no lock",
            hint="give a plan, a request or a lock",
            field="--baseline" if wishes.baseline else "--locked",
        )
    if plans and not configurations and wishes.command is None:
        _refuse_asked(plans[0], wishes.asked)
    baseline = None if wishes.baseline is None else _compared(wishes.baseline, stdin)
    verdicts = tuple(_verdict(file, wishes, baseline, stdin) for file in plans)
    return (*verdicts, *_configured(configurations, wishes))


def _refuse_asked(file: str, asked: Asked) -> None:
    """Refuse what a plan, a request or a lock says itself."""
    fields = ["--model"] if asked.model is not None else []
    fields += [f"cluster.{name}" for name in asked.cluster]
    fields += [f"recipe.{name}" for name in asked.recipe]
    if fields:
        raise InvalidInputError(
            f"{one_line(file)} says that itself",
            hint="leave it out: it is for configurations of other tools; `planner suggest` plans for others",
            field=fields[0],
        )


def _configured(files: Sequence[str], wishes: Wishes) -> tuple[Verdict, ...]:
    """Return the verdict on all configurations together: they are of one run."""
    texts = {file: read_configuration(file) for file in files}
    if wishes.command is not None:
        texts[COMMAND] = wishes.command
    texts = _with_named(texts)
    if not texts:
        return ()
    verdict = judge_configurations(texts, wishes.asked, wishes.limits, own_plan(files))
    return (verdict,)


def _verdict(file: str, wishes: Wishes, baseline: Facts | None, stdin: BinaryIO) -> Verdict:
    document = read_document(file, stdin)
    if document.facts is None:
        return Verdict(document=document, checks=(nothing_fits(document),))
    checks = judge(document.facts, wishes.limits, baseline, wishes.growth)
    compared, changes = None, tuple[Change, ...]()
    if wishes.is_locked:
        checks, changes = _locked(document, checks)
        compared = "the plan that was locked"
    if baseline is not None:
        compared = BASELINE if wishes.baseline == "-" else wishes.baseline
        changes = differences(baseline, document.facts)
    return Verdict(document=document, checks=checks, baseline=compared, changes=changes)


def _locked(
    document: Document, checks: tuple[Check, ...]
) -> tuple[tuple[Check, ...], tuple[Change, ...]]:
    try:
        of_lock, changes = check_lock(document)
    except NothingFitsError as error:
        message = f"nothing fits any more: {one_line(error.message)}"
        broken = Check(code="CHK006", name="locked-plan", level="error", message=message)
        return (*checks, broken), ()
    return (*checks, *of_lock), changes


def compare_files(one: str, other: str, stdin: BinaryIO) -> tuple[Change, ...]:
    """Return what differs between two files.

    Raises:
        PlannerError: one of them cannot be read, or has no plan.
    """
    if one == other == "-":
        raise InvalidInputError("- is stdin, and can be read once", hint="give files", field="FILE")
    return differences(_compared(one, stdin), _compared(other, stdin))


def _compared(file: str, stdin: BinaryIO) -> Facts:
    document = read_document(file, stdin)
    if document.facts is None:
        raise NothingFitsError(
            f"{one_line(file)} has no plan to compare with: {document.refusal}", document.hint
        )
    return document.facts


def _with_named(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the files with those that they name: a configuration here, or beside the file that names it.

    A file under review may name any: only what lies below those folders is opened.
    """
    found = dict(texts)
    known = {_real(file) for file in texts}
    for name, beside in list(_named(texts)):
        path = next((each for each in _places(name, beside) if _is_below(each, beside)), None)
        if path is not None and path not in known and is_configuration_file(str(path)):
            file = str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
            found[file] = read_configuration(file)
            known.add(path)
    return found


def _named(texts: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for file, text in texts.items():
        try:
            setup = Setup(found=recognise(text, one_line(file)))
        except PlannerError:
            continue
        for setting in named_files(setup):
            yield setting.text, Path(file).parent


def _places(name: str, beside: Path) -> Iterator[Path]:
    for folder in (Path(), beside):
        try:
            path = (folder / name).resolve()
            if path.is_file():
                yield path
        except (OSError, ValueError, RuntimeError):
            continue


def _is_below(path: Path, beside: Path) -> bool:
    return any(path.is_relative_to(folder.resolve()) for folder in (Path(), beside))


def _real(file: str) -> Path:
    try:
        return Path(file).resolve()
    except (OSError, ValueError, RuntimeError):
        return Path(file)
