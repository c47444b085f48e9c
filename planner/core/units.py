"""Base units inside (bytes, seconds, FLOPs, tokens), and how they are shown to a person."""

from string import Formatter
from typing import Any, SupportsFloat

KIB = 2**10
MIB = 2**20
GIB = 2**30
KILO = 10**3
MEGA = 10**6
GIGA = 10**9
TERA = 10**12
MICRO = 1e-6
MILLI = 1e-3
NANO = 1e-9

_BINARY = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_RATES = ((TERA, "TB/s"), (GIGA, "GB/s"), (MEGA, "MB/s"), (KILO, "kB/s"))
_FLOPS = (
    (10**15, "PFLOP"),
    (TERA, "TFLOP"),
    (GIGA, "GFLOP"),
    (MEGA, "MFLOP"),
    (KILO, "kFLOP"),
)
_SECONDS = ((86400, "d"), (3600, "h"), (1, "s"), (MILLI, "ms"), (MICRO, "us"), (NANO, "ns"))
_AS_FAST, _TIMES = 1.005, 2
"""Ratios of two step times: below the first they are as fast, from the second on told as they are."""
_COUNTS = ((10**12, "T"), (GIGA, "B"), (MEGA, "M"))
_TEN, _HUNDRED = 10, 100
"""From which on a number has one more digit before its point."""
_WHOLE_FROM, _CENT = 10, 0.01
"""Sums of money and hours are shown without decimals from here on, with two from here on."""


def _scaled(amount: float, scales: tuple[tuple[float, str], ...], unit: str) -> str:
    for scale, name in scales:
        if abs(amount) >= scale:
            return f"{_significant(amount / scale)} {name}"
    return f"{_significant(amount) if amount % 1 else f'{amount:,.0f}'} {unit}"


def _significant(amount: float) -> str:
    """Three significant digits without an exponent: 1.23, 12.3, 123, 1,234."""
    size = abs(amount)
    digits = 2 if round(size, 2) < _TEN else 1 if round(size, 1) < _HUNDRED else 0
    return f"{amount:,.{digits}f}"


def format_bytes(amount: SupportsFloat) -> str:
    """Show bytes in binary units: 1.25 GiB."""
    return _scaled(float(amount), _BINARY, "B")


def format_rate(bytes_per_second: SupportsFloat) -> str:
    """Show a bandwidth in decimal units, as vendors state it: 300 GB/s."""
    return _scaled(float(bytes_per_second), _RATES, "B/s")


def format_bit_rate(bytes_per_second: SupportsFloat) -> str:
    """Show a network's bandwidth in bits, as clouds state it: 400 Gbit/s."""
    return f"{8 * float(bytes_per_second) / GIGA:,g} Gbit/s"


def format_flops(amount: SupportsFloat) -> str:
    """Show a number of floating-point operations: 3.52 TFLOP."""
    return _scaled(float(amount), _FLOPS, "FLOP")


def format_seconds(amount: SupportsFloat) -> str:
    """Show a duration in the unit that leaves it readable: 35.2 ms; nothing below 5 ps."""
    amount = float(amount)
    nanoseconds = amount / NANO
    if abs(nanoseconds) < 1:
        return "0 s" if round(nanoseconds, 2) == 0 else f"{nanoseconds:.2f} ns"
    return _scaled(amount, _SECONDS, "s")


def format_duration(amount: SupportsFloat) -> str:
    """Show how long a run takes: 43.0 s, 12.5 h, 3.2 days."""
    amount = float(amount)
    for size, name in ((86_400, "days"), (3600, "h"), (60, "min")):
        if amount >= 2 * size:
            return f"{amount / size:,.1f} {name}"
    return f"{amount:,.1f} s"


def format_count(amount: SupportsFloat) -> str:
    """Show a large count: 124 M, 6.74 B; small ones in full."""
    amount = float(amount)
    return _scaled(amount, _COUNTS, "").strip() if abs(amount) >= MEGA else f"{amount:,.0f}"


def format_fraction(amount: SupportsFloat) -> str:
    """Show a fraction as a percentage: 41 %."""
    return f"{100 * float(amount):.0f} %"


def format_percent(amount: SupportsFloat) -> str:
    """Show a factor of an arithmetic as a percentage, to three digits: 6 %, 5.25 %."""
    percentage = 100 * float(amount)
    return f"{percentage:.3g} %" if percentage < KILO else f"{percentage:,.0f} %"


def format_pace(step_seconds: SupportsFloat, than_seconds: SupportsFloat) -> str:
    """Show how one step compares with another: 8.2 % faster, 27 % slower, 3.2 times as long, as fast.

        A is faster than B by B's step time / A's - 1, and B slower than A by as much

    Below half a percent they are as fast: no estimate tells them apart.
    """
    step, than = float(step_seconds), float(than_seconds)
    ratio = max(step, than) / min(step, than)
    if ratio < _AS_FAST:
        return "as fast"
    if ratio >= _TIMES:
        return f"{ratio:,.1f} times as {'long' if step > than else 'fast'}"
    percentage = 100 * (ratio - 1)
    digits = 1 if round(percentage, 1) < _TEN else 0
    return f"{percentage:.{digits}f} % {'slower' if step > than else 'faster'}"


def format_ranks(amount: SupportsFloat) -> str:
    """Show a number of ranks: 1 rank, 8 ranks."""
    return _counted(amount, "rank", "ranks")


def format_micro_batches(amount: SupportsFloat) -> str:
    """Show a number of micro-batches: 1 micro-batch, 4 micro-batches."""
    return _counted(amount, "micro-batch", "micro-batches")


def format_sequences(amount: SupportsFloat) -> str:
    """Show a number of sequences: 1 sequence, 512 sequences."""
    return _counted(amount, "sequence", "sequences")


def format_samples(amount: SupportsFloat, sample: str) -> str:
    """Show a number of what a step trains on, as `planner.domain.job.Job.sample` has it: 512 pairs."""
    return _counted(amount, sample, f"{sample}s")


def format_steps(amount: SupportsFloat) -> str:
    """Show a number of steps: 1 step, 1,024 steps."""
    return _counted(amount, "step", "steps")


def format_sum(amount: SupportsFloat) -> str:
    """Show money or hours: 1,234, 1.10 or, below a cent, two digits such as 0.0027."""
    value = float(amount)
    if value >= _WHOLE_FROM:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= _CENT or not value else f"{value:.2g}"


def format_gpus(amount: SupportsFloat) -> str:
    """Show a number of GPUs: 1 GPU, 8 GPUs."""
    return _counted(amount, "GPU", "GPUs")


def _counted(amount: SupportsFloat, one: str, many: str) -> str:
    return f"{float(amount):,.0f} {one if float(amount) == 1 else many}"


_FORMATS = {
    "bytes": format_bytes,
    "rate": format_rate,
    "flops": format_flops,
    "seconds": format_seconds,
    "count": format_count,
    "percent": format_percent,
    "fraction": format_fraction,
    "GPUs": format_gpus,
    "ranks": format_ranks,
    "micro-batches": format_micro_batches,
    "sequences": format_sequences,
    "steps": format_steps,
}


class UnitFormatter(Formatter):
    """`str.format` whose format specs may name a unit: `{size:bytes}`, `{time:seconds}`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Format one field; an unknown spec means what it means to `format()`."""
        if format_spec in _FORMATS:
            return _FORMATS[format_spec](float(value))
        return str(super().format_field(value, format_spec))
