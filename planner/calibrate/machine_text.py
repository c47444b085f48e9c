"""What a machine file holds, and how its runs are predicted -> text for a terminal."""

from collections.abc import Sequence

from planner.calibrate.anchors import RunCheck
from planner.core.units import format_bytes, format_fraction, format_rate, format_seconds
from planner.machine.document import Anchor, Machine
from planner.report.values import Terminal, columns_text

_MOST_RUNS = 12
_LONGEST_NAME = 44


def machine_text(machine: Machine, terminal: Terminal) -> str:
    """Return what a machine file holds, part by part."""
    hardware, name = machine.cluster, f" {machine.name}" if machine.name else ""
    gpus = f"{hardware.nodes} x {hardware.gpus_per_node} {hardware.gpu}"
    head = terminal.bold(f"Machine{name}: {gpus}, measured {machine.created}")
    rows = [(label, text) for label, text in _parts(machine) if text]
    rows += _anchors(machine)
    if len(rows) == 0:
        return head + "\n  nothing was measured: every figure is the catalogue's"
    return head + "\n" + columns_text([(f"  {label}", text) for label, text in rows])


def _parts(machine: Machine) -> list[tuple[str, str]]:
    gemm = ", ".join(f"{len(each.points)} in {each.dtype}" for each in machine.gemm)
    attention = ", ".join(
        f"{len(each.points)} in {each.dtype}, heads of {each.head_size}"
        for each in machine.attention
    )
    collectives = ", ".join(
        f"{each.operation} of {each.ranks}" + (f" on {each.nodes} nodes" * (each.nodes > 1))
        for each in machine.collectives
    )
    rates = (
        ("memory", machine.memory_bytes_per_second),
        ("copies to GPU", machine.host_to_device_bytes_per_second),
        ("optimizer", machine.optimizer_bytes_per_second),
    )
    return [
        ("software", ", ".join(f"{name} {text}" for name, text in machine.software.items())),
        ("matmuls", gemm),
        ("attention", attention),
        *((label, format_rate(rate)) for label, rate in rates if rate),
        ("launch", format_seconds(machine.launch_seconds) if machine.launch_seconds else ""),
        ("collectives", collectives),
        ("runs", f"{len(machine.runs):,}" if machine.runs else ""),
    ]


def _anchors(machine: Machine) -> list[tuple[str, str]]:
    anchors = machine.anchors
    before = _before(machine)
    kinds = (
        ("kernels", anchors.compute, f"than {before}"),
        ("with adapters", anchors.adapters, "besides"),
        ("exchanges", anchors.communication, f"than {before}"),
        ("host", anchors.host, f"than {before}"),
    )
    rows = [(label, _factor(anchor, than)) for label, anchor, than in kinds if anchor is not None]
    if anchors.memory is not None:
        memory = anchors.memory
        more = (
            f"{format_bytes(abs(memory.more_bytes))} {'more' if memory.more_bytes >= 0 else 'less'}"
        )
        spread = format_bytes(memory.spread_bytes)
        rows.append(("reserved", f"{more} than planned, give or take {spread}"))
    if anchors.range_share is not None:
        share = format_fraction(anchors.range_share)
        rows.append(("ranges", f"{share} as wide as without these runs"))
    return rows


def _before(machine: Machine) -> str:
    """Return who says what its runs are compared with: what was measured of the machine besides, where that is."""
    has_curves = machine.gemm or machine.attention or machine.collectives
    return "its curves say" if has_curves else "the catalogue says"


def _factor(anchor: Anchor, than: str) -> str:
    runs = f"{anchor.runs} run{'s' if anchor.runs > 1 else ''}"
    way = "longer" if anchor.factor >= 1 else "shorter"
    share = format_fraction(abs(anchor.factor - 1))
    return f"{share} {way} {than}, give or take {format_fraction(anchor.spread)}, by {runs}"


def checks_text(machine: Machine, checks: Sequence[RunCheck], terminal: Terminal) -> str:
    """Return how each run is predicted: without the machine, with it, and with all other runs alone."""
    if not checks:
        return "no run says how long a step took"
    before = _before(machine).split()[1]
    head = ("run", "measured", before, "with the runs", "left out")
    rows = [head, *(_row(machine, check) for check in checks[:_MOST_RUNS])]
    more = len(checks) - _MOST_RUNS
    last = f"\n  and {more:,} more" if more > 0 else ""
    errors = (
        (before, [check.before_seconds / check.measured_seconds for check in checks]),
        ("left out", [check.left_out_seconds / check.measured_seconds for check in checks]),
    )
    medians = ", ".join(f"{name} {_median_error(ratios)}" for name, ratios in errors)
    title = terminal.bold("Runs, predicted against measured")
    odd = "".join(f"\n  {line}" for line in _odd(machine, checks))
    return f"{title}\n{columns_text(rows)}{last}\n  median error: {medians}{odd}"


def _odd(machine: Machine, checks: Sequence[RunCheck]) -> list[str]:
    """Say which runs no other bears out, and what becomes of them."""
    lines = []
    for check in checks:
        if not check.counts:
            ratio = check.measured_seconds / check.before_seconds
            longer = f"{ratio:.2g} times as long as"
            took = longer if ratio > 1 else f"{format_fraction(ratio)} of what is"
            lines.append(
                f"{_name(machine, check)} took {took} estimated, outside its range: it counts when a second run"
                " agrees. Time one, or leave this out where its batch, sequence length, precision or GPUs were others"
            )
    more = len(lines) - _MOST_RUNS
    return lines[:_MOST_RUNS] + [f"and {more:,} more like these"] * (more > 0)


def _row(machine: Machine, check: RunCheck) -> tuple[str, ...]:
    name = _name(machine, check)
    predicted = (check.before_seconds, check.after_seconds, check.left_out_seconds)
    cells = (
        f"{format_seconds(each)} ({100 * (each / check.measured_seconds - 1):+.0f} %)"
        for each in predicted
    )
    return (f"  {name}", format_seconds(check.measured_seconds), *cells)


def _name(machine: Machine, check: RunCheck) -> str:
    run = machine.runs[check.number]
    name = run.source or str(run.request.get("id") or f"run {check.number + 1}")
    return "".join(each for each in name if each.isprintable())[:_LONGEST_NAME]


def _median_error(ratios: Sequence[float]) -> str:
    errors = sorted(abs(ratio - 1) for ratio in ratios)
    middle = len(errors) // 2
    value = errors[middle] if len(errors) % 2 else (errors[middle - 1] + errors[middle]) / 2
    return f"{100 * value:.1f} %"
