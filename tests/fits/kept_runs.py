"""The file of a source in `data/accuracy`: its figures, what each run is like, and its prediction."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from planner.accuracy.predict import Accuracy, Prediction, Refusal
from planner.domain.kinds import kind_of

_DECIMALS = 6
"""Of the figures of a source, which are fractions."""
_DIGITS = 5
"""Of a run's prediction."""
_SOURCE = "data/measurements/runs, by pytest --update-golden tests/accuracy/test_accuracy.py"


def as_kept(figures: Accuracy, results: Sequence[Prediction | Refusal]) -> str:
    """Return the file of a source: its figures, what its runs are like, then of each its step and peak, or why it is refused."""
    lines = (
        result.reason
        if isinstance(result, Refusal)
        else (_rounded(result.step_seconds), _rounded(result.peak_bytes))
        for result in results
    )
    runs = ",\n".join(json.dumps(line) for line in lines)
    of_runs = list(map(_nature, results))
    natures = list(dict.fromkeys(of_runs))
    like = ",\n".join(map(json.dumps, natures))
    places = [natures.index(each) for each in of_runs]
    said = {name: each for name, each in asdict(figures).items() if name != "source"}
    head = json.dumps(_shortened(said), indent=1)
    about = f'"natures": [\n{like}\n],\n"nature_of_runs": {places}'
    return f'{{"source": "{_SOURCE}",\n{about},\n"figures": {head},\n"runs": [\n{runs}\n]}}\n'


def _nature(result: Prediction | Refusal) -> tuple[str, str, int]:
    if isinstance(result, Refusal):
        return ("", "", 0)
    job, layout = result.job, result.strategy
    return (kind_of(job, layout).value, layout.family, job.model.parameters)


def _rounded(amount: float) -> float:
    """Return an amount in as many digits as are kept; a whole one is an integer."""
    short = float(f"{amount:.{_DIGITS}g}")
    return int(short) if short.is_integer() else short


def _shortened(said: Any) -> Any:
    if isinstance(said, dict):
        return {name: _shortened(each) for name, each in said.items()}
    return round(said, _DECIMALS) if isinstance(said, float) else said
