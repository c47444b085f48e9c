"""Fit the constants of engines that generate, with all published steps and without those of each model in turn.

Prints the tables of `data/calibration/rollout.toml`.
"""

from collections.abc import Callable, Sequence
from math import log
from statistics import fmean

from fits.pattern_search import Constants, search
from planner.accuracy.rollout_runs import RolloutRun, predicted, rollout_runs, with_constants
from planner.catalog.rollout import FittedRecord, rollout

COARSE = {
    "hbm_share": (0.6, 0.75),
    "matmul_share": (0.5,),
    "step_seconds": (0.003, 0.006),
    "sequence_seconds": (1e-5, 4e-5),
    "tensor_seconds": (5e-4, 1e-3),
    "between_share": (0.1, 0.25),
}
_LARGEST = {"hbm_share": 0.85, "matmul_share": 0.6, "between_share": 0.35}
"""What no engine is above."""


def fitted(runs: Sequence[RolloutRun]) -> Constants:
    """Return the constants of the least mean error, as a logarithm."""
    return search(_loss(runs), COARSE)


def _loss(runs: Sequence[RolloutRun]) -> Callable[[Constants], float]:
    def loss(constants: Constants) -> float:
        if any(constants[name] > most for name, most in _LARGEST.items()):
            return float("inf")
        record = with_constants(rollout().engine, FittedRecord(**constants))
        return fmean(
            abs(log(predicted(run, record).step_seconds / run.said["step_seconds"])) for run in runs
        )

    return loss


def _lines(title: str, constants: Constants) -> str:
    record = FittedRecord(**constants)
    micro = {name: 1e6 * getattr(record, name) for name in constants if name.endswith("seconds")}
    shares = {name: getattr(record, name) for name in constants if name.endswith("share")}
    lines = [f"{name} = {value:.3g}" for name, value in shares.items()]
    lines += [f"{name.removesuffix('seconds')}us = {value:.3g}" for name, value in micro.items()]
    return "\n".join((title, *lines, ""))


if __name__ == "__main__":
    every = rollout_runs()
    print(_lines("[engine]", fitted(every)))
    for model in dict.fromkeys(run.said["model"] for run in every):
        others = [run for run in every if run.said["model"] != model]
        print(_lines(f'[left_out."{model}"]', fitted(others)))
