"""Plans and a budget -> whether they can be run here, and what a race of them may gain and take."""

from collections.abc import Sequence

from planner.core.errors import InvalidInputError, PlannerError, UnsupportedError
from planner.core.units import format_duration, format_fraction, format_gpus
from planner.hardware.probe import probe
from planner.race.entrants import Entrant
from planner.race.odds import FEWEST, may_gain
from planner.request.schema import parse_request, resolve
from planner.search.training_run import start_up
from planner.verify.real_step import START_SECONDS

_USUAL_STEPS = 16
"""That know a median to 2 % where nothing else runs on the machine, the warm-up included."""


def check_machine(entrants: Sequence[Entrant], *, on_cpus: bool) -> None:
    """Refuse plans that this machine cannot run.

    Raises:
        PlannerError: nothing is installed, they are of several nodes, or of more GPUs than there are.
    """
    if not entrants:
        raise UnsupportedError(
            "nothing to race: no plan's packages are installed here",
            hint="pip install -r requirements.txt of a plan's folder, in the environment of this program",
        )
    nodes = max(each.planned.nodes for each in entrants)
    if nodes > 1:
        raise UnsupportedError(
            f"the plans are for {nodes} nodes, and a race runs on one machine",
            hint="plan with --nodes 1, or start each by its launch files with --log FILE, then planner verify FILE",
        )
    if on_cpus:
        return
    found, wanted = probe(), max(each.planned.ranks for each in entrants)
    here = len(found.topology.gpu_names) if found else 0
    if not here:
        raise UnsupportedError(
            "no GPU was found here", hint="--cpu runs smaller copies on this machine's cores"
        )
    if here < wanted:
        raise UnsupportedError(
            f"the plans are for {format_gpus(wanted)}, and {here} {'is' if here == 1 else 'are'} here",
            hint=f"plan with --gpus {here}",
        )


def check_time(entrants: Sequence[Entrant], budget_seconds: float) -> None:
    """Refuse a budget in which no plan takes enough steps.

    Raises:
        InvalidInputError: says which would do.
    """
    least = min(_seconds(each, 1 + FEWEST) for each in entrants)
    if least > budget_seconds:
        raise InvalidInputError(
            f"no plan takes {1 + FEWEST} steps in {format_duration(budget_seconds)}:"
            f" the fastest needs {format_duration(least)} with its start",
            hint=f"--minutes {_expected(entrants) / 60 + 1:.0f} is enough for all",
            field="--minutes",
        )


def worth(entrants: Sequence[Entrant], budget_seconds: float) -> str:
    """Return what a race may gain and how long it takes, in words."""
    if len(entrants) == 1:
        return f"one plan to run: {entrants[0].name}; nothing else is near it"
    framework = str(entrants[0].planned.data["job"]["recipe"].get("framework", ""))
    gain = may_gain(framework, [each.planned.step_seconds.likely for each in entrants])
    taken = format_duration(min(budget_seconds, _expected(entrants)))
    return (
        f"{len(entrants)} plans whose order is in doubt; the two best may differ by"
        f" {format_fraction(gain)}: about {taken} with {len(entrants)} starts,"
        f" {format_duration(budget_seconds)} at most"
    )


def _expected(entrants: Sequence[Entrant]) -> float:
    return sum(_seconds(each, _USUAL_STEPS) for each in entrants)


def _seconds(entrant: Entrant, steps: int) -> float:
    return _start_seconds(entrant) + steps * entrant.planned.step_seconds.likely


def _start_seconds(entrant: Entrant) -> float:
    """Return what a plan's processes need until their first step, compiling left out."""
    try:
        job = resolve(parse_request(entrant.planned.request), allow_paths=True).job
    except PlannerError:  # of a machine whose file is not here
        return START_SECONDS
    return float(start_up(job).amount)
