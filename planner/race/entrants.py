"""A request, or folders of launch files -> the plans that are run: those whose order the doubt leaves open."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from planner.advice.choice import chosen_layout
from planner.advice.rules.verdict import has_other_numbers
from planner.answers import answer_plan, suggest_layout
from planner.answers.parts import layout_answer
from planner.calibrate.logs.log_file import shown
from planner.core.errors import InvalidInputError, PlannerError
from planner.core.frozen import frozen
from planner.domain.job import Job
from planner.domain.strategy import Offload
from planner.generate.write_bundle import write_bundle
from planner.race.odds import is_open
from planner.request.schema import Request, parse_request
from planner.request.sections import FilesRequest, StrategyRequest
from planner.request.stacks import other_stacks, stack_of
from planner.request.strategy import pinned_fields
from planner.search.candidate import Candidate
from planner.verify.planned import Planned, read_planned
from planner.verify.run import TARGETS

PLAN = "plan.json"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@frozen
class Entrant:
    """A plan that is run."""

    name: str
    """What it is called in what is printed."""
    folder: Path
    planned: Planned
    target: str
    missing: tuple[str, ...] = ()
    """Packages that its target needs and that are not installed here."""


@frozen
class _Open:
    """A layout of one stack."""

    job: Job
    candidate: Candidate

    @property
    def seconds(self) -> float:
        """Return its planned step."""
        return float(self.candidate.step_time.step_seconds)

    @property
    def changes(self) -> dict[str, Any]:
        """Return what a request has that asks for it alone."""
        layout = layout_answer(self.job, self.candidate.strategy)
        said = {name: value for name, value in layout.items() if value is not None}
        return {"recipe": stack_of(self.job), "strategy": said}


def entrants_of_request(request: Request, most: int, folder: Path) -> tuple[Entrant, ...]:
    """Write the plans of a request whose order is in doubt, and return them.

    Args:
        request: of a suggestion.
        most: plans.
        folder: where they are written, each into a folder of its own.

    Raises:
        PlannerError: nothing fits, or nothing that does can be run for a few steps.
    """
    written: list[Entrant] = []
    for number, each in enumerate(_in_doubt(request)):
        if len([one for one in written if not one.missing]) == most:
            break
        entrant = _written(request, each, folder / f"plan-{number + 1}")
        if entrant is not None:
            written.append(entrant)
    if not written:
        raise InvalidInputError(
            f"no plan of this has launch files that can be run for a few steps: {', '.join(TARGETS)} can",
            hint="--framework torch plans for them"
            + (", and --target must name one" if isinstance(request.files.targets, list) else ""),
        )
    return tuple(_with_names(written))


def _in_doubt(request: Request) -> list[_Open]:
    """Return the choice and what may be faster, the fastest first; what trains another way than the choice is none of it."""
    resolved, plan = suggest_layout(request, allow_paths=True)
    chosen = _Open(job=plan.job, candidate=plan.chosen)
    others = [
        _Open(job=plan.job, candidate=each.candidate)
        for each in plan.alternatives
        if not each.unwritten
    ]
    pinned = pinned_fields(request.strategy)
    for stack in (resolved, *other_stacks(request, resolved, allow_paths=True)):
        found = chosen_layout([stack.job], pinned)
        if found is not None:
            others.append(_Open(job=stack.job, candidate=found))
    alike = [each for each in others if _trains_alike(each, chosen)]
    fastest = min(each.seconds for each in (chosen, *alike))
    name = plan.job.framework.name
    in_doubt = [each for each in alike if is_open(name, fastest, each.seconds)]
    once = {json.dumps(each.changes, sort_keys=True): each for each in (chosen, *in_doubt)}
    first, *rest = once.values()
    return [first, *sorted(rest, key=lambda each: each.seconds)]


def _trains_alike(other: _Open, chosen: _Open) -> bool:
    """Return whether a layout could take the choice's place: it averages as often, computes in as many bits, needs no more of the host."""
    layout, own = other.candidate.strategy, chosen.candidate.strategy
    return (
        layout.synchronize_every == own.synchronize_every
        and layout.offload in {own.offload, Offload.NONE}
        and not has_other_numbers(other.job, layout, own)
    )


def _written(request: Request, wanted: _Open, folder: Path) -> Entrant | None:
    """Write one plan; None where no target that can be run writes it."""
    strategy = StrategyRequest.model_validate(wanted.changes["strategy"])
    recipe = request.recipe.model_copy(update=wanted.changes["recipe"])
    pinned = request.model_copy(
        update={"strategy": strategy, "recipe": recipe, "objective": "time"}
    )
    try:
        resolved, plan = suggest_layout(pinned, allow_paths=True)
        named = request.files.targets
        able = [
            name
            for name in plan.launch.targets
            if name in TARGETS and (not isinstance(named, list) or name in named)
        ]
        if not able:
            return None
        files = FilesRequest(targets=able[:1], launchers=request.files.launchers)
        write_bundle(folder, plan, answer_plan(resolved, plan, None), files, force=False)
    except PlannerError:
        return None
    return _entrant(folder, plan.chosen.strategy.family)


def entrants_of_folder(
    given: str, most: int, scratch: Path, launcher: str = ""
) -> tuple[Entrant, ...]:
    """Return the plans in a folder; of a single one also those whose order beside it is in doubt.

    Args:
        given: the folder.
        most: plans.
        scratch: where those are written that are not in the folder.
        launcher: whose files they have, beside those of their targets.

    Raises:
        InvalidInputError: there are no launch files that can be run for a few steps.
    """
    folder = Path(given)
    if (folder / PLAN).is_file():
        own = _entrant(folder, "")
        said = {name: own.planned.request[name] for name in ("model", "cluster", "recipe")}
        said |= {"files": {"launchers": [launcher]}} if launcher else {}
        others = entrants_of_request(parse_request(said), most, scratch)
        layout = own.planned.data["chosen"]["strategy"]
        rest = [each for each in others if each.planned.data["chosen"]["strategy"] != layout]
        return tuple(_with_names([own, *rest[: most - 1]]))
    found = [_entrant(each.parent, each.parent.name) for each in sorted(folder.glob(f"*/{PLAN}"))]
    found.sort(key=lambda each: each.planned.step_seconds.likely)
    return tuple(found[:most])


def has_plans(given: str) -> bool:
    """Return whether a name is of a folder with launch files; of a model's folder not.

    Raises:
        InvalidInputError: it is a folder that has neither.
    """
    try:
        folder = Path(given)
        if not folder.is_dir() or (folder / "config.json").is_file():
            return False
        plans = [folder / PLAN, *folder.glob(f"*/{PLAN}")]
    except (OSError, ValueError):
        return False
    if not any(each.is_file() for each in plans):
        raise InvalidInputError(
            f"{shown(given)} has no launch files and no model",
            hint="give a folder of `planner suggest ... --out DIR`, one that has several of them, or a model",
        )
    return True


def _entrant(folder: Path, name: str) -> Entrant:
    planned = read_planned(str(folder))
    target = next((each for each in TARGETS if (folder / each / "launch.sh").is_file()), "")
    if not target:
        raise InvalidInputError(
            f"{shown(str(folder))} has no target that can be run for a few steps",
            hint=f"planner suggest ... --out DIR writes {', '.join(TARGETS)}",
        )
    family = name or str(planned.data["chosen"].get("family", "plan"))
    missing = tuple(_missing(folder / target / "requirements.txt"))
    return Entrant(name=family, folder=folder, planned=planned, target=target, missing=missing)


def _missing(requirements: Path) -> Iterator[str]:
    """Yield the packages of a target that are not installed beside this program."""
    lines = requirements.read_text().splitlines() if requirements.is_file() else []
    for line in lines:
        named = _NAME.match(line)
        try:
            version(named[0] if named else "pip")
        except PackageNotFoundError:
            yield named[0] if named else ""


def _with_names(entrants: Sequence[Entrant]) -> Iterator[Entrant]:
    """Yield plans under names that tell them apart: the family, and what of the software and micro-batch differs."""
    words = [_words(each) for each in entrants]
    shared = set.intersection(*map(set, words))
    taken: dict[str, int] = {}
    for each, own in zip(entrants, words, strict=True):
        name = ", ".join([each.name, *(word for word in own if word and word not in shared)])
        taken[name] = taken.get(name, 0) + 1
        again = f" ({taken[name]})" if taken[name] > 1 else ""
        yield replace(each, name=name + again)


def _words(each: Entrant) -> tuple[str, ...]:
    recipe, layout = each.planned.data["job"]["recipe"], each.planned.data["chosen"]["strategy"]
    return (
        str(recipe.get("framework", "")),
        "compiled" if recipe.get("compile") else "eager",
        f"{recipe.get('loss', '')} loss",
        f"micro-batch {layout.get('micro_batch_size')}",
        f"recompute {layout.get('recompute')}",
    )
