"""The file of a source in `data/accuracy`: its figures, and each run's prediction."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from planner.accuracy.predict import Accuracy, Prediction, Refusal

_DECIMALS = 6
"""Of the figures of a source, which are fractions."""
_DIGITS = 5
"""Of a run's prediction."""
_SOURCE = "data/measurements/runs, by pytest --update-golden tests/accuracy/test_accuracy.py"


def as_kept(figures: Accuracy, results: Sequence[Prediction | Refusal]) -> str:
    """Return the file of a source: its figures, then a line per run, its step and its peak or why it is refused."""
    lines = (
        result.reason
        if isinstance(result, Refusal)
        else (_rounded(result.step_seconds), _rounded(result.peak_bytes))
        for result in results
    )
    runs = ",\n".join(json.dumps(line) for line in lines)
    said = {name: each for name, each in asdict(figures).items() if name != "source"}
    head = json.dumps(_shortened(said), indent=1)
    return f'{{"source": "{_SOURCE}",\n"figures": {head},\n"runs": [\n{runs}\n]}}\n'


def _rounded(amount: float) -> float:
    """Return an amount in as many digits as are kept; a whole one is an integer."""
    short = float(f"{amount:.{_DIGITS}g}")
    return int(short) if short.is_integer() else short


def _shortened(said: Any) -> Any:
    if isinstance(said, dict):
        return {name: _shortened(each) for name, each in said.items()}
    return round(said, _DECIMALS) if isinstance(said, float) else said
