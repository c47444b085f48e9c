"""What a rule is, what it looks at, and what it finds."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from planner.candidate import Candidate
from planner.job import Job


class Severity(StrEnum):
    """How much a finding weighs."""

    BLOCKER = "blocker"
    """The layout cannot run."""
    WARNING = "warning"
    """It runs, but something will hurt."""
    ADVICE = "advice"
    """What an expert would say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a rule judges: a job, one of its layouts, and what the search knows of the rest."""

    job: Job
    candidate: Candidate
    """The layout in question."""
    smallest_replica: Candidate
    """The layout with a whole replica per GPU (DDP) that needs the least memory."""
    fastest: Candidate
    """The fastest layout that fits, whatever the rules prefer; the candidate if none fits."""

    @property
    def fits_on_one_gpu(self) -> bool:
        """Return whether one GPU can hold and train a whole replica with room to spare."""
        return bool(self.smallest_replica.is_comfortable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule that fired, with its reason in numbers."""

    code: str
    name: str
    severity: Severity
    message: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A code and the function that judges; the function's docstring is the documentation."""

    code: str
    severity: Severity
    judge: Callable[[Situation], str | None]

    @property
    def name(self) -> str:
        """Return the pattern found, in kebab case."""
        return getattr(self.judge, "__name__", "").replace("_", "-")

    @property
    def text(self) -> str:
        """Return the statement and its Why, Instead and Source."""
        return inspect.getdoc(self.judge) or ""

    def find(self, situation: Situation) -> Finding | None:
        """Return the finding, or None where the rule stays silent."""
        message = self.judge(situation)
        if message is None:
            return None
        return Finding(code=self.code, name=self.name, severity=self.severity, message=message)
