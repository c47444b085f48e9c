"""A plan -> the published runs that are nearest to it, each beside what is said of it."""

from collections.abc import Iterator
from math import log2

from planner.accuracy.kept import Nature, kept
from planner.accuracy.predict import Compared
from planner.advice.confidence import likeness
from planner.catalog import records
from planner.catalog.kinds import Likeness
from planner.core.frozen import frozen
from planner.core.units import format_count, format_seconds
from planner.domain.job import Job
from planner.report.values import Heading, ReportRow, ReportTable
from planner.search.candidate import Candidate

_MOST = 3


@frozen
class Evidence:
    """A published run, whose source has others."""

    source: str
    nature: Nature
    compared: Compared

    @property
    def model(self) -> str:
        """Return the model's name, or its type and size where the run says a config alone."""
        said = self.compared.run.request["model"]
        if isinstance(said, str):
            return said
        return f"{said['model_type']}, {format_count(self.nature.parameters)}"

    @property
    def gpus(self) -> int:
        """Return how many GPUs it ran on."""
        cluster = self.compared.run.request["cluster"]
        return int(cluster["gpus_per_node"]) * int(cluster.get("nodes", 1))

    @property
    def gpu(self) -> str:
        """Return the kind of GPU."""
        return records.gpu(self.compared.run.request["cluster"]["gpu"]).name

    @property
    def machine(self) -> str:
        """Return how many GPUs of which kind it ran on."""
        return f"{self.gpus:,} x {self.gpu}"

    @property
    def seconds(self) -> float:
        """Return its measured step."""
        return self.compared.run.step_seconds or 0.0


def nearest_evidence(job: Job, candidate: Candidate) -> tuple[Evidence, ...]:
    """Return the three runs nearest to a layout, of those that say how sure its estimate is, no two of them alike.

    Near is what few doublings of parameters, GPUs and sequence length lie between; another family counts as one.
    """
    like = likeness(job, candidate)
    if like is None:
        return ()

    def distance(each: Evidence) -> float:
        length = each.compared.run.request["recipe"].get("sequence_length")
        pairs = (
            (each.nature.parameters, job.model.parameters),
            (each.gpus, job.cluster.world_size),
            (length or job.recipe.sequence_length, job.recipe.sequence_length),
        )
        differs = each.nature.family != candidate.strategy.family
        return differs + sum(abs(log2(one / other)) for one, other in pairs)

    found: dict[tuple[str, ...], Evidence] = {}
    for each in sorted(_of(like), key=distance):
        found.setdefault((each.source, each.model, each.machine, each.nature.family), each)
    return tuple(found.values())[:_MOST]


def _of(like: Likeness) -> Iterator[Evidence]:
    for source in like.sources:
        known = kept(source)
        for nature, result in zip(known.natures, known.results, strict=True):
            if isinstance(result, Compared) and result.run.step_seconds:
                each = Evidence(source=source, nature=nature, compared=result)
                if nature.kind == like.kind and _is_of(like, each):
                    yield each


def _is_of(like: Likeness, each: Evidence) -> bool:
    framework = each.compared.run.request["recipe"]["framework"]
    return like.gpu in {"", each.gpu} and like.framework in {"", framework}


def evidence_table(found: tuple[Evidence, ...]) -> ReportTable:
    """Return what was measured of each run beside what is said of it; its source is listed by `planner accuracy`."""
    numbers = ("measured", "estimated", "off")
    return ReportTable(
        title="Nearest published runs",
        note="their steps, and what is estimated of them",
        headings=(
            Heading(name="model", is_key=True),
            Heading(name="GPUs"),
            Heading(name="strategy"),
            *(Heading(name=name, is_number=True) for name in numbers),
            Heading(name="source"),
        ),
        rows=tuple(ReportRow(cells=_cells(each)) for each in found),
    )


def _cells(each: Evidence) -> tuple[str, ...]:
    measured, estimated = each.seconds, each.compared.step_seconds
    off = f"{round(100 * (each.compared.time_error or 0.0)):+d} %"
    steps = (format_seconds(measured), format_seconds(estimated))
    strategy = each.nature.family if each.gpus > 1 else "none"
    return (each.model, each.machine, strategy, *steps, off, each.source)
