"""Plans and a budget -> whether they can be run here, and what a race of them may gain and take."""

import os
import re
import shutil
from collections.abc import Sequence

from planner.calibrate.logs.log_file import shown
from planner.catalog.spellings import spelled
from planner.core.errors import InvalidInputError, PlannerError, UnsupportedError, did_you_mean
from planner.core.units import format_duration, format_fraction, format_gpus
from planner.hardware.probe import probe
from planner.race.entrants import Entrant
from planner.race.odds import FEWEST, may_gain
from planner.race.slurm import Slurm
from planner.race.ways import Here, Ssh, Way, launch_file
from planner.request.schema import parse_request, resolve
from planner.search.training_run import start_up
from planner.verify.real_step import START_SECONDS

_PROGRAMS = {"slurm": ("sbatch", "scontrol", "scancel"), "ssh": ("ssh",)}
"""Of each launcher that a race starts jobs by."""
_HOST = re.compile(r"[A-Za-z0-9][\w.:@-]{0,252}")
_HOSTS_HINT = "name one for each node: --hosts me@node0,me@node1"
_USUAL_STEPS = 16
"""That know a median to 2 % where nothing else runs on the machine, the warm-up included."""


def chosen_way(launcher: str | None, hosts: str | None) -> Way:
    """Return how plans are started.

    Args:
        launcher: of `--launcher`, as it was typed.
        hosts: of `--hosts`, as they were typed.

    Raises:
        InvalidInputError: a race starts nothing by that launcher, or the hosts are none.
    """
    name = spelled("files.launchers", launcher, _PROGRAMS) if launcher else ""
    if name and name not in _PROGRAMS:
        known = " or ".join(_PROGRAMS)
        raise InvalidInputError(
            f"a race starts no jobs by {shown(name)}: {known}",
            hint=did_you_mean(name, _PROGRAMS)
            or "start each plan yourself, then planner verify LOG --plan DIR reads its log",
            field="--launcher",
        )
    if (name == "ssh") != bool(hosts):
        raise InvalidInputError(
            "--launcher ssh needs --hosts" if name else "--hosts are of --launcher ssh",
            hint=_HOSTS_HINT,
            field="--hosts",
        )
    return Ssh(hosts=_read_hosts(hosts)) if hosts else Slurm() if name else Here()


def _read_hosts(typed: str) -> tuple[str, ...]:
    hosts = tuple(each.strip() for each in typed.split(","))
    for each in hosts:
        if not _HOST.fullmatch(each):
            raise InvalidInputError(
                f"{shown(each)!r} is no host", hint=_HOSTS_HINT, field="--hosts"
            )
        if hosts.count(each) > 1:
            raise InvalidInputError(
                f"{each} is named twice", hint="a host is one node", field="--hosts"
            )
    return hosts


def check_way(entrants: Sequence[Entrant], way: Way) -> None:
    """Refuse plans that cannot be started that way.

    Raises:
        PlannerError: nothing is installed; see `check_machine`; or a launcher's programs are not here, a plan has no
            file of it, or not as many nodes as there are hosts.
    """
    if isinstance(way, Ssh):
        _check_hosts(entrants, way.hosts)
    if way.launcher:
        _check_installed(entrants)
        _check_jobs(entrants, way.launcher)
    else:
        check_machine(entrants, on_cpus=way.on_cpus)


def check_machine(entrants: Sequence[Entrant], *, on_cpus: bool) -> None:
    """Refuse plans that this machine cannot run.

    Raises:
        PlannerError: nothing is installed, they are of several nodes, or of more GPUs than there are.
    """
    _check_installed(entrants)
    nodes = max(each.planned.nodes for each in entrants)
    if nodes > 1:
        raise UnsupportedError(
            f"the plans are for {nodes} nodes, and a race runs on one machine",
            hint="--launcher slurm or ssh starts them on several; or plan with --nodes 1",
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


def _check_jobs(entrants: Sequence[Entrant], launcher: str) -> None:
    lacking = [name for name in _PROGRAMS[launcher] if shutil.which(name) is None]
    if lacking:
        raise UnsupportedError(
            f"no {lacking[0]} here, which --launcher {launcher} needs",
            hint="start the race on a machine from which jobs are started",
            field="--launcher",
        )
    for each in entrants:
        if not launch_file(each.folder, launcher).is_file():
            raise InvalidInputError(
                f"{shown(str(each.folder))} has no launchers/{launcher}.sh",
                hint=f"planner suggest ... --out DIR --launcher {launcher} writes it",
                field="--launcher",
            )
        if not os.access(each.folder, os.W_OK):
            raise InvalidInputError(
                f"{shown(str(each.folder))} cannot be written, and its jobs print into it",
                hint="copy it to a folder that is yours, and that every node sees",
            )


def _check_hosts(entrants: Sequence[Entrant], hosts: Sequence[str]) -> None:
    for each in entrants:
        if each.planned.nodes != len(hosts):
            nodes = each.planned.nodes
            raise InvalidInputError(
                f"{each.name} is for {nodes} node{'s'[: nodes > 1]}, and --hosts names {len(hosts)}",
                hint=_HOSTS_HINT,
                field="--hosts",
            )


def _check_installed(entrants: Sequence[Entrant]) -> None:
    if not entrants:
        raise UnsupportedError(
            "nothing to race: no plan's packages are installed here",
            hint="pip install -r requirements.txt of a plan's folder, in the environment of this program",
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
    share, first = budget_seconds / len(entrants), min(_seconds(each, 2) for each in entrants)
    if first > share:
        raise InvalidInputError(
            f"{len(entrants)} plans share {format_duration(budget_seconds)}, {format_duration(share)} each:"
            f" the fastest needs {format_duration(first)} to its second step",
            hint=f"--minutes {_expected(entrants) / 60 + 1:.0f} is enough for all; --most runs fewer",
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
