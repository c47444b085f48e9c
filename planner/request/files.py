"""The names of targets and launchers in a request: are there such?"""

from planner.catalog.records import read
from planner.catalog.spellings import spelled
from planner.core.errors import UnknownNameError, did_you_mean
from planner.request.sections import FilesRequest
from planner.targets import JUDGES, retired_targets

ALL = "all"


def launcher_names() -> tuple[str, ...]:
    """Return the launchers that there are."""
    return tuple(read("scripts", "launchers")["launchers"])


def check_files(wanted: FilesRequest) -> None:
    """Refuse names that no target or launcher has.

    Raises:
        UnknownNameError: names the first of them, and the nearest there is.
    """
    _check("target", wanted.targets, tuple(JUDGES))
    _check("launcher", wanted.launchers, launcher_names())


def _check(what: str, names: str | list[str] | None, known: tuple[str, ...]) -> None:
    for name in names if isinstance(names, list) else ():
        if name not in known:
            instead = retired_targets().get(name, "") if what == "target" else ""
            meant = spelled(f"files.{what}s", name)
            near = did_you_mean(meant, known) or f"known: {', '.join(known)}, or {ALL}"
            raise UnknownNameError(
                f"unknown {what} {name[:40]!r}",
                hint=instead or near,
                field=f"files.{what}s",
            )
