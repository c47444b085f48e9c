"""Ways to train whole replicas -> text for a terminal."""

from collections.abc import Sequence

from planner.advice.replicas import DDP, NN_DATA_PARALLEL, Interval, Replicas, Way
from planner.core.units import format_count, format_gpus, format_percent, format_seconds
from planner.report.layout_words import assumptions_text, layout_text, memory_figure
from planner.report.values import (
    Heading,
    ReportRow,
    ReportTable,
    Terminal,
    figures_text,
    table_text,
)
from planner.request.remarks import Assumption

_WHOLE_FROM = 100
"""Samples per second that are shown without decimals."""
_AS_LONG = 0.15
"""Of a step: what is called as long."""
_PRICE = (
    "Quality is the price: BERT-large on SQuAD lost 1.7 % of its F1 at K = 16 (88.8 to 87.3), so compare a"
    " short run with DDP."
)


def replicas_text(replicas: Replicas, assumptions: Sequence[Assumption], terminal: Terminal) -> str:
    """Return which way is how fast, what that means for a run, and what nn.DataParallel exchanges."""
    job, candidate = replicas.job, replicas.candidate
    head = terminal.bold(terminal.paragraph(layout_text(candidate.strategy, job)))
    memory = figures_text((memory_figure(job, candidate),), terminal)
    sections = [
        f"{head}\n{memory}",
        table_text(_ways(replicas), terminal),
        _meaning(replicas, terminal),
        _exchanges(replicas, terminal),
        _local_sgd(replicas, terminal),
        assumptions_text(assumptions, terminal),
    ]
    return "\n\n".join(section for section in sections if section)


def _ways(replicas: Replicas) -> ReportTable:
    names = ("step", "samples/s", "times as fast")
    return ReportTable(
        title="Ways to train",
        note="one GPU has the batch of one rank",
        headings=(
            Heading(name="way", is_key=True),
            *(Heading(name=n, is_number=True) for n in names),
        ),
        rows=tuple(_row(way) for way in (replicas.one_gpu, *replicas.ways)),
    )


def _rate(samples_per_second: float) -> str:
    is_large = samples_per_second >= _WHOLE_FROM
    return f"{samples_per_second:,.0f}" if is_large else f"{samples_per_second:.3g}"


def _row(way: Way) -> ReportRow:
    fast = f"{way.times_as_fast:.2f}"
    rate = _rate(way.samples_per_second)
    return ReportRow(cells=(way.name, format_seconds(way.step_seconds), rate, fast))


def _meaning(replicas: Replicas, terminal: Terminal) -> str:
    one = replicas.one_gpu.step_seconds
    ddp = next(way for way in replicas.ways if way.name == DDP)
    gpus = replicas.job.cluster.world_size
    longer = ddp.step_seconds / one
    as_long = "as long" if abs(longer - 1) < _AS_LONG else f"{longer:.2f} times as long"
    return terminal.paragraph(
        f"As many steps (max_steps) take {as_long} on {format_gpus(gpus)}, with {gpus} times the data;"
        f" as many epochs are {ddp.times_as_fast:.2f} times as fast."
    )


def _exchanges(replicas: Replicas, terminal: Terminal) -> str:
    found = {way.name: way for way in replicas.ways}
    if not replicas.exchanges:
        return ""
    more = found[NN_DATA_PARALLEL].step_seconds / found[DDP].step_seconds - 1
    verdict = f"{format_percent(abs(more))} {'more' if more > 0 else 'less'} time than DDP"
    verdict = verdict if more < 1 else f"{1 + more:.1f} times the time of DDP"
    title = terminal.bold("nn.DataParallel")
    width = max(len(term.name) for term in replicas.exchanges)
    lines = (
        terminal.paragraph(
            f"{format_seconds(term.amount):>8}  {term.how}",
            first=f"  {term.name.replace('_', ' '):<{width}}  ",
            rest=" " * (width + 14),
        )
        for term in replicas.exchanges
    )
    head = f"{title} (one process: 5 exchanges a pass that nothing hides; {verdict})"
    return "\n".join((head, *lines))


def _local_sgd(replicas: Replicas, terminal: Terminal) -> str:
    local = replicas.local
    if local is None:
        return ""
    names = ["step", "times as fast", *(["averages left"] if replicas.run_steps else [])]
    report = ReportTable(
        title="Local SGD",
        note="every GPU steps alone, weights are averaged every K steps",
        headings=(
            Heading(name="K", is_number=True),
            *(Heading(name=name, is_number=True) for name in names),
            Heading(name=""),
        ),
        rows=tuple(_interval(each, replicas) for each in replicas.intervals),
    )
    a, b = format_seconds(local.fixed_seconds), format_seconds(local.average_seconds)
    chosen = f"K = {local.interval} is the smallest within 5 % of that. {_PRICE}"
    if local.interval == 1:
        chosen = "DDP is within 5 % of that: local SGD brings nothing here."
    elif not local.is_near:
        chosen = f"K = {local.interval}, the largest looked at, is not within 5 % of that. {_PRICE}"
    said = f"A step takes {a} + {b} / K; none is faster than {a}. {chosen}"
    return f"{table_text(report, terminal)}\n{terminal.paragraph(said)}"


def _interval(each: Interval, replicas: Replicas) -> ReportRow:
    is_chosen = replicas.local is not None and each.synchronize_every == replicas.local.interval
    words = [
        "DDP" if each.synchronize_every == 1 else "",
        "fast enough" if is_chosen else "",
        "few averages: a risk to quality" if each.is_risky else "",
    ]
    cells = [
        str(each.synchronize_every),
        format_seconds(each.step_seconds),
        f"{each.times_as_fast:.2f}",
        *([format_count(each.averages)] if replicas.run_steps else []),
        ", ".join(word for word in words if word),
    ]
    return ReportRow(cells=tuple(cells))
