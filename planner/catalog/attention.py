"""What was measured of fused attention kernels: `data/calibration/attention.toml` -> typed records."""

from functools import cache

from planner.catalog.records import latest_known, read
from planner.catalog.tables import build
from planner.core.frozen import frozen


@frozen
class AttentionCurve:
    """Share of a GPU's dense 16-bit peak that one kind of attention kernel reaches on it."""

    forward: float
    """For wide heads and many keys; backward alike."""
    backward: float
    head_dim_half: float
    """Channels of a head at which half of that is reached."""
    keys_half_causal: float
    """Keys at which half of it is reached, with causal masking and without."""
    keys_half_full: float
    is_alone: bool = False
    """Whether the shares are those of the kernel alone, which it keeps in training; else training takes its part."""
    source: str

    def ramp(self, head_dim: float, num_keys: float, *, is_causal: bool) -> float:
        """Return the share of `forward` and `backward` that a shape reaches.

            ramp = d / (d + head_dim_half) * s / (s + keys_half)

        Notation: d head dimension; s keys per query.
        """
        keys_half = self.keys_half_causal if is_causal else self.keys_half_full
        return head_dim / (head_dim + self.head_dim_half) * num_keys / (num_keys + keys_half)


@cache
def attention_curve(kernel: str, compute_capability: str) -> AttentionCurve:
    """Return the curve of a kernel on GPUs of that capability, of the nearest older, or the default."""
    record = read("calibration", "attention")
    mine = [curve for curve in record["curve"] if curve["kernel"] == kernel]
    chosen = latest_known(mine, compute_capability) or record["default"]
    named = ("kernel", "compute_capability")
    measured = {key: value for key, value in chosen.items() if key not in named}
    shapes = {key: record[key] for key in ("head_dim_half", "keys_half_causal", "keys_half_full")}
    return build(AttentionCurve, shapes | measured, f"calibration/attention, {kernel}")


def attention_kernels() -> tuple[str, ...]:
    """Return the names of all kernels that have a curve."""
    return tuple(sorted({curve["kernel"] for curve in read("calibration", "attention")["curve"]}))
