"""Which matmul curve of `data/calibration/gemm.toml` a GPU has."""

from collections.abc import Mapping
from typing import Any

_CONSTANTS = ("overhead_us", "peak_fraction", "hbm_fraction", "sharpness")
_WIDE, _HALF = "fp32", "fp16"


def gemm_curve(calibration: Mapping[str, Any], gpu: Mapping[str, Any]) -> dict[str, Any]:
    """Return the card's own curve, else one of its compute capability, else the default.

    Where the largest products of a card without a curve of its own were timed, they stand for its share of the peak, by
    dtype; where none were, cards that accumulate at half rate reach theirs.

    Args:
        calibration: `data/calibration/gemm.toml`.
        gpu: the GPU's record.
    """
    name, capability = gpu["name"], gpu.get("compute_capability", "")
    own = [curve for curve in calibration["curve"] if curve["gpu"] == name]
    kin = [curve for curve in calibration["curve"] if curve["compute_capability"] == capability]
    chosen = (own or kin or [calibration["default"]])[0]
    error = calibration["borrowed"]["median_error"] if kin and not own else chosen["median_error"]
    found = {
        **{key: chosen[key] for key in _CONSTANTS},
        "spread": error,
        "source": chosen.get("source") or f"{calibration['source']}, {chosen['gpu']}",
    }
    largest = [entry for entry in calibration["largest"] if entry["gpu"] == name]
    if largest:
        return found | _timed(calibration, largest[0], gpu["peak_tflops"])
    if not own and _accumulates_at_half_rate(calibration, gpu):
        half = calibration["half_rate"]
        return found | {
            "peak_fraction": half["peak_fraction"],
            "spread": calibration["timed_at_its_largest"]["median_error"],
            "source": half["source"],
        }
    return found


def _timed(
    calibration: Mapping[str, Any], largest: Mapping[str, Any], peaks: Mapping[str, float]
) -> dict[str, Any]:
    shares = {dtype: rate / peaks[dtype] for dtype, rate in largest["tflops"].items()}
    halves = [shares[dtype] for dtype in ("bf16", _HALF) if dtype in shares]
    return {
        "peak_fraction": halves[0] if halves else shares[_WIDE],
        "fractions": shares,
        "spread": calibration["timed_at_its_largest"]["median_error"],
        "source": largest["source"],
    }


def _accumulates_at_half_rate(calibration: Mapping[str, Any], gpu: Mapping[str, Any]) -> bool:
    peaks, most = gpu["peak_tflops"], calibration["half_rate"]["most_over_fp32"]
    limit = most.get(gpu.get("compute_capability"), 0) * peaks[_WIDE]
    return bool(0 < peaks.get(_HALF, 0) <= limit)
