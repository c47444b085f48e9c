"""Timed products -> the curve of one GPU.

    seconds = overhead + ((2mnk / (f * peak))^s + (bytes / (h * hbm))^s)^(1/s)

Notation: f peak_fraction, h hbm_fraction, s sharpness, as in `data/calibration/gemm.toml`. They are found by a pattern
search over their logarithms that makes the mean |log(curve / timed)| small; straying from the catalogue's curve by
a factor e costs `_PULL`, so that few points change what they speak of and leave the rest.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from planner.core.term import Column
from planner.domain.cluster import GemmCurve, Gpu
from planner.domain.precision import MATMUL_BYTES
from planner.machine.document import GemmPoint

_PULL = 0.003
_VECTOR = 8
"""Elements of 16 bit that a kernel loads at once."""
_CONSTANTS = ("overhead_seconds", "peak_fraction", "hbm_fraction", "sharpness")
_BOUNDS = {
    "overhead_seconds": (1e-8, 1e-2),
    "peak_fraction": (0.001, 1.2),
    "hbm_fraction": (0.01, 2.0),
    "sharpness": (0.7, 8.0),
}
_FIRST_STEP, _LAST_STEP = 0.5, 0.005


def aligned(points: Sequence[GemmPoint]) -> Sequence[GemmPoint]:
    """Return the products whose rows begin where kernels load whole vectors; all, where none do.

    What the others take longer is a factor of its own: see `planner.step_time.compute`.
    """
    found = [each for each in points if math.gcd(each.m, each.n, each.k, _VECTOR) == _VECTOR]
    return found or points


def fitted_curve(gpu: Gpu, dtype: str, points: Sequence[GemmPoint], source: str) -> GemmCurve:
    """Return the curve that timed products of one dtype lie on, with its median error as its spread."""
    m, n, k, timed = (
        np.array([getattr(point, name) for point in points], dtype=float)
        for name in ("m", "n", "k", "seconds")
    )
    size = MATMUL_BYTES.get(dtype, 2)
    moved = (size * (m * k + k * n) + max(size, 2) * m * n) / gpu.hbm_bytes_per_second
    arithmetic = 2 * m * n * k / gpu.peak_flops[dtype]

    def errors(curve: GemmCurve) -> Column:
        of_peak, of_memory = arithmetic / curve.peak_fraction, moved / curve.hbm_fraction
        blended = (of_peak**curve.sharpness + of_memory**curve.sharpness) ** (1 / curve.sharpness)
        ratios: Column = np.log((curve.overhead_seconds + blended) / timed)
        return np.abs(ratios)

    def loss(curve: GemmCurve) -> float:
        strayed = (getattr(curve, name) / getattr(gpu.gemm, name) for name in _CONSTANTS)
        return float(errors(curve).mean()) + _PULL * sum(math.log(share) ** 2 for share in strayed)

    best, step = gpu.gemm, _FIRST_STEP
    while step > _LAST_STEP:
        moves = [_moved(best, name, sign * step) for name in _CONSTANTS for sign in (1, -1)]
        found = min(moves, key=loss)
        if loss(found) < loss(best):
            best = found
        else:
            step /= 2
    spread = float(median(errors(best)))
    return replace(best, spread=spread, source=source, fractions={})


def _moved(curve: GemmCurve, name: str, by: float) -> GemmCurve:
    lowest, highest = _BOUNDS[name]
    values: dict[str, Any] = {name: min(max(getattr(curve, name) * math.exp(by), lowest), highest)}
    return replace(curve, **values)
