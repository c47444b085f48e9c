"""What was measured of fused attention kernels: `data/calibration/attention.toml` -> typed records."""

import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

from planner.catalog.records import capability_version, data_root
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
    is_alone: bool
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
    record = _record()
    mine = [curve for curve in record["curve"] if curve["kernel"] == kernel]
    wanted = capability_version(compute_capability)
    known = [curve for curve in mine if capability_version(curve["compute_capability"]) <= wanted]
    chosen = max(
        known, key=lambda curve: capability_version(curve["compute_capability"]), default=None
    )
    entry = chosen or record["default"]
    return AttentionCurve(
        forward=entry["forward"],
        backward=entry["backward"],
        head_dim_half=record["head_dim_half"],
        keys_half_causal=record["keys_half_causal"],
        keys_half_full=record["keys_half_full"],
        is_alone=entry.get("is_alone", False),
        source=entry["source"],
    )


def attention_kernels() -> tuple[str, ...]:
    """Return the names of all kernels that have a curve."""
    return tuple(sorted({curve["kernel"] for curve in _record()["curve"]}))


@cache
def _record() -> Mapping[str, Any]:
    file = data_root() / "calibration" / "attention.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))
