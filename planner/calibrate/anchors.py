"""Timed runs -> how much longer each kind of work takes on this machine than the planner says.

A run's step is a sum over kinds of work c (kernels, exchanges, the host), each off by a factor e^(f_c) of its own,
and what is left over is the layout's own:

    log measured = log step(f) + e,  f ~ N(0, t P),  e ~ Student's t of 4 degrees of freedom, scale r
    H[i, c] = d log step_i / d f_c;  f = C H' W (log measured - log step(f) + H f) / r^2,  C = (P^-1 / t + H' W H / r^2)^-1
    W[i, i] = 5 / (4 + E e_i^2 / r^2);  r^2 = (2 r0^2 + E e' W e) / (2 + n);  t = (2 + E f' P^-1 f) / (2 + 4)

Notation: P the planner's own doubts (`planner.step_time.doubt`), each a square on the diagonal, a release's in all of
it: half-widths that hold 80 % of runs, so 1.28 deviations; n runs; r0 `BETWEEN_RUNS`, which counts as two runs, as the doubts do: several runs that are off alike are the machine's,
several that are not are their layouts'. E is over what f may still be, C its covariance. H is taken by finite differences of the estimate, so that work that hides behind other work
has no part in it, and f is found by Gauss and Newton's iteration. So each factor moves by the information that the
runs hold of it: one run that computes says little of the exchanges, and many runs more than one. W is what a run
counts for: one that is far from all others, such as one that waited for its data, says less the further it is.

A run that stalled is as sure of itself as any, and few runs do not show which is odd. So a run outside the range that
the planner gives it counts when another is off the same way by half as much at least, and not before; and one run
that is all that counts moves a factor by `_ONE_RUN` at the most.

How a run is predicted from all others is a fit without it; of many runs log step(f_-i), f_-i = f - C H_i' W_i e_i /
(r^2 (1 - h_i)), h_i = W_i H_i C H_i' / r^2. A run without others is predicted as the catalogue does. What is
left of a range's width is the root of the mean square of those errors over the half-widths, which hold 80 % of
runs and so 1.28 deviations, with `_PRIOR_RUNS` more for which the ranges are as they were.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, section 2.1 for the linear model, 5.4.2 for
leaving one out; Dempster, Laird and Rubin (1977), Maximum likelihood from incomplete data, for r and t; Lange, Little
and Taylor, Robust statistical modeling using the t distribution, JASA 84, 1989, for W and 4 degrees of freedom; the
iterated extended Kalman filter: Bell and Cathey, IEEE Transactions on Automatic Control 38, 1993.
Leaves out: that runs which are alike are alike in what is left over.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from planner.calibrate.reserved import memory_anchor
from planner.calibrate.runs import TimedLayouts, timed_layouts
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.term import Column
from planner.core.units import format_seconds
from planner.domain.job import Job
from planner.domain.strategy import Table, num_rows
from planner.machine.document import Anchor, Anchors, Machine
from planner.machine.factors import Factors, scaled_cluster, scaled_framework
from planner.step_time.doubt import Cause, spreads
from planner.step_time.ledger import StepTime, estimate_step_time

BETWEEN_RUNS = 0.15
"""How far apart two layouts of one machine are from the planner's estimates, beyond all factors: chosen on published
runs, each predicted by one other of its machine and by constants that its source had no part in (docs/accuracy/anchored.md)."""
KINDS = ("compute", "adapters", "communication", "host")
_PRIOR_RUNS = 4
_DEVIATIONS = 1.28
"""Of a normal distribution to each side, between which 80 % of it lies: a doubt is such a half-width."""
_FEWEST, _MOST = 0.25, 2.0
"""Of a range's width that may be left."""
_ONE_RUN = 0.015
"""That a run may move the logarithm of a factor where it is all that counts: of 2,843 published runs, each taken as the
only one of its machine, none makes the median error of the others worse by more than 2 points (docs/accuracy/anchored.md)."""
_SPEAKS = 0.01
"""Of a step, from which a run says something of a kind of work."""
_FEW = 12
"""Runs of which one still shows in what all others are taken for."""
_ROUNDS = 4
_SETTLING = 20
_COUNTS = 2
"""Runs that what is known before any of them counts for."""
_FREEDOM = 4
"""Degrees of freedom of what is left over: of few runs a normal distribution's, with room for some far off."""
_STEP = 0.02
_FURTHEST = math.log(20)
"""That a kind of work, or a run, may be from its estimate."""
_FASTEST = 1.2
"""Of the GPUs' peak: boost clocks bring some consumer cards a little above their data sheet."""


@frozen
class Fit:
    """Factors by kind of work, and how each run is predicted."""

    logarithms: Column
    """Of the factors, by `KINDS`."""
    covariance: Column
    before: Column
    """Log of predicted over measured, of each run, without factors."""
    after: Column
    """With them."""
    left_out: Column
    """With those of all other runs."""
    shares: Column
    """[run, kind]: what a change of the factor changes of the step."""
    counts: Column
    """[run]: whether the factors are by it."""
    range_share: float


@frozen
class RunCheck:
    """One run, as measured and as predicted."""

    number: int
    """Its place among the machine's runs."""
    measured_seconds: float
    before_seconds: float
    after_seconds: float
    left_out_seconds: float
    """Predicted from all other runs."""
    counts: bool
    """False where it is outside the range that the planner gives it, and no other run of the machine is off like it."""


def anchored(machine: Machine, *, allow_paths: bool = True) -> tuple[Machine, tuple[RunCheck, ...]]:
    """Return the machine with anchors by all of its runs, and how each run is predicted.

    Args:
        machine: with its runs; anchors that it has are made anew.
        allow_paths: whether the runs' models may be files of this machine.

    Raises:
        PlannerError: a run's request cannot be estimated.
    """
    curves = replace(machine, anchors=Anchors(), runs=())
    timed = timed_layouts(machine.runs, curves, allow_paths=allow_paths)
    memory = memory_anchor(machine, curves, allow_paths=allow_paths)
    if not timed:
        return replace(machine, anchors=Anchors(memory=memory)), ()
    _check_possible(machine, timed)
    found = fit(timed)
    numbers = [number for group in timed for number in group.numbers]
    seconds = np.concatenate([group.seconds for group in timed])
    _check_likely(numbers, seconds, found.before)
    anchors = replace(anchors_of(found), memory=memory)
    checks = (
        RunCheck(
            number=number,
            measured_seconds=float(seconds[row]),
            before_seconds=float(seconds[row] * np.exp(found.before[row])),
            after_seconds=float(seconds[row] * np.exp(found.after[row])),
            left_out_seconds=float(seconds[row] * np.exp(found.left_out[row])),
            counts=bool(found.counts[row]),
        )
        for row, number in enumerate(numbers)
    )
    ordered = tuple(sorted(checks, key=lambda check: check.number))
    return replace(machine, anchors=anchors), ordered


def _check_possible(machine: Machine, timed: Sequence[TimedLayouts]) -> None:
    """Refuse a run that computes faster than its GPUs can: its request is not the run's own.

        share of the peak = model FLOPs per GPU / (seconds * peak)

    Raises:
        InvalidInputError: says which.
    """
    for step, group in zip(_steps(timed, np.zeros(len(KINDS))), timed, strict=True):
        planned = step.model_flops_utilization * step.step_seconds
        shares = np.broadcast_to(planned, group.seconds.shape) / group.seconds
        row = int(np.argmax(shares))
        if shares[row] > _FASTEST:
            cluster, number = group.job.cluster, group.numbers[row]
            took = format_seconds(group.seconds[row])
            raise InvalidInputError(
                f"{machine.runs[number].source or f'run {number + 1}'} took {took} a step, {shares[row]:,.3g} times as"
                f" fast as {cluster.world_size} x {cluster.gpu.name} can compute at their peak",
                hint="are batch, sequence length (padded to it, or shorter?), precision and GPUs the run's own?",
                field="--runs",
            )


def _check_likely(numbers: Sequence[int], seconds: Column, before: Column) -> None:
    """Refuse a run that is so far from its estimate that a unit or its request is wrong.

    Raises:
        InvalidInputError: says which.
    """
    row = int(np.argmax(np.abs(before)))
    if abs(before[row]) > _FURTHEST:
        taken, planned = seconds[row], seconds[row] * np.exp(np.clip(before[row], -50, 50))
        raise InvalidInputError(
            f"run {numbers[row] + 1} took {format_seconds(taken)} a step, and its request is estimated at"
            f" {format_seconds(planned)}",
            hint="step_seconds is of one optimizer step, in seconds; is the request the run's own?",
            field="--runs",
        )


def fit(timed: Sequence[TimedLayouts]) -> Fit:
    """Return the factors that timed runs speak for; see the module."""
    measured = np.log(np.concatenate([group.seconds for group in timed]))
    prior = np.linalg.inv(_prior(timed))
    factors = np.zeros(len(KINDS))
    before = _log_steps(timed, factors)
    off, outside = measured - before, _outside(timed)
    counts = _counts(off, outside)
    predicted, shares, wanted = before, np.zeros((len(measured), len(KINDS))), off
    for _ in range(_ROUNDS):
        steps = (_log_steps(timed, factors + _STEP * unit) for unit in np.eye(len(KINDS)))
        shares = np.stack([(moved - predicted) / _STEP for moved in steps], axis=1)
        wanted = measured - predicted + shares @ factors
        factors = _told(prior, shares[counts], wanted[counts])
        predicted = _log_steps(timed, factors)
    left_out = _left_out(prior, shares, wanted, off, outside)
    return Fit(
        logarithms=factors,
        covariance=_posterior(prior, shares[counts], wanted[counts])[1],
        before=-off,
        after=predicted - measured,
        left_out=left_out,
        shares=shares,
        counts=counts,
        range_share=_range_share(timed, factors, left_out),
    )


def _outside(timed: Sequence[TimedLayouts]) -> Column:
    """Return which runs are outside the range of their estimate."""
    found = [
        np.broadcast_to(
            (group.seconds < step.low_seconds) | (group.seconds > step.high_seconds),
            group.seconds.shape,
        )
        for step, group in zip(_steps(timed, np.zeros(len(KINDS))), timed, strict=True)
    ]
    outside: Column = np.concatenate(found)
    return outside


def _counts(off: Column, outside: Column) -> Column:
    """Return which runs count: those in their ranges, and those that another bears out by half at least."""
    agrees = np.outer(off, off) >= np.square(off)[:, None] / 2
    np.fill_diagonal(agrees, val=False)
    found: Column = ~outside | agrees.any(axis=1)
    return found


def _told(prior: Column, shares: Column, wanted: Column) -> Column:
    """Return the factors' logarithms by the runs that count: one alone moves little."""
    furthest = _ONE_RUN if len(wanted) == 1 else _FURTHEST
    told: Column = np.clip(_posterior(prior, shares, wanted)[0], -furthest, furthest)
    return told


def _left_out(
    prior: Column, shares: Column, wanted: Column, off: Column, outside: Column
) -> Column:
    """Return log of predicted over measured, of each run by all others; of many, with r and t as all of them say."""
    if len(wanted) == 1:
        return -off
    if len(wanted) > _FEW:
        counts = _counts(off, outside)
        factors, covariance, noise, weights = _posterior(prior, shares[counts], wanted[counts])
        leverage = counts * np.einsum("ij,jk,ik->i", shares, covariance, shares) / noise
        leverage[counts] *= weights
        predicted: Column = (shares @ factors - wanted) / (1 - leverage)
        return predicted
    told = []
    for row in range(len(wanted)):
        rest = np.arange(len(wanted)) != row
        rest[rest] = _counts(off[rest], outside[rest])
        told.append(shares[row] @ _told(prior, shares[rest], wanted[rest]) - wanted[row])
    return np.array(told)


def _posterior(
    prior: Column, shares: Column, wanted: Column
) -> tuple[Column, Column, float, Column]:
    """Return the factors' logarithms, their covariance, r^2, and what each run counts for; see the module.

    Args:
        prior: P^-1.
        shares: H.
        wanted: logarithms that H f should give.
    """
    noise, scale, weights = BETWEEN_RUNS**2, 1.0, np.ones(len(wanted))
    for _ in range(_SETTLING):
        weighted = shares.T * weights
        covariance = np.linalg.inv(prior / scale + weighted @ shares / noise)
        factors = covariance @ weighted @ wanted / noise
        apart = (wanted - shares @ factors) ** 2
        apart += np.einsum("ij,jk,ik->i", shares, covariance, shares)
        weights = (_FREEDOM + 1) / (_FREEDOM + apart / noise)
        noise = float((_COUNTS * BETWEEN_RUNS**2 + weights @ apart) / (_COUNTS + len(wanted)))
        off = factors @ prior @ factors + np.sum(prior * covariance)
        scale = float((_COUNTS + off) / (_COUNTS + len(factors)))
    return factors, covariance, noise, weights


def anchors_of(found: Fit) -> Anchors:
    """Return the factors of the kinds of work that the runs say something of."""
    anchors: dict[str, Any] = {
        kind: Anchor(
            factor=float(np.exp(found.logarithms[index])),
            spread=float(np.sqrt(found.covariance[index, index])),
            runs=int(np.sum(found.shares[found.counts, index] > _SPEAKS)),
        )
        for index, kind in enumerate(KINDS)
        if np.any(found.shares[found.counts, index] > _SPEAKS)
    }
    return Anchors(**anchors, range_share=found.range_share)


def on_factors(job: Job, logarithms: Column) -> Job:
    """Return a job whose kinds of work take so much longer."""
    factors = Factors(**dict(zip(KINDS, map(float, np.exp(logarithms)), strict=True)))
    cluster = scaled_cluster(job.cluster, factors)
    return replace(job, cluster=cluster, framework=scaled_framework(job.framework, factors))


def _steps(timed: Sequence[TimedLayouts], logarithms: Column) -> list[StepTime]:
    return [estimate_step_time(on_factors(each.job, logarithms), each.layouts) for each in timed]


def _log_steps(timed: Sequence[TimedLayouts], logarithms: Column) -> Column:
    seconds = [
        np.broadcast_to(step.step_seconds, group.seconds.shape)
        for step, group in zip(_steps(timed, logarithms), timed, strict=True)
    ]
    found: Column = np.log(np.concatenate(seconds))
    return found


def _prior(timed: Sequence[TimedLayouts]) -> Column:
    found = [
        _doubts(group.job, group.layouts, step)
        for step, group in zip(_steps(timed, np.zeros(len(KINDS))), timed, strict=True)
    ]
    mean: Column = np.average(found, axis=0, weights=[len(group.seconds) for group in timed])
    return mean


def _doubts(job: Job, layouts: Table, step: StepTime) -> Column:
    known = {
        cause: np.maximum(np.mean(spread), 1e-3) for cause, spread in spreads(job, layouts).items()
    }
    of_kernels = (Cause.KERNELS, Cause.CURVE, Cause.MEMORY_BOUND)
    widths = {
        cause: np.broadcast_to(step.doubts[cause], (num_rows(layouts),)) for cause in of_kernels
    }
    squares = sum(np.square(width) for width in widths.values())
    spent = sum(widths[each] / known[each] for each in (Cause.KERNELS, Cause.MEMORY_BOUND))
    compute = float(np.mean(np.sqrt(squares) / np.maximum(spent, 1e-12)))
    uncertainty = job.framework.uncertainty
    own = (compute, uncertainty.adapters, known[Cause.NETWORK], uncertainty.host)
    logarithms = np.log1p([max(each, 1e-3) for each in own])
    whole = np.hypot(known[Cause.RELEASE], known[Cause.KIND])
    of_release = whole * np.array([kind != "adapters" for kind in KINDS])
    widths_squared: Column = np.diag(logarithms**2) + np.outer(of_release, of_release)
    return widths_squared / _DEVIATIONS**2


def _range_share(timed: Sequence[TimedLayouts], logarithms: Column, left_out: Column) -> float:
    """Return what is left of the ranges' width, by how well each run was predicted from the others."""
    widths = []
    for step, group in zip(_steps(timed, logarithms), timed, strict=True):
        together = np.sqrt(sum(np.square(width) for width in step.doubts.values()))
        relative = np.broadcast_to(together / step.step_seconds, group.seconds.shape)
        widths.append(relative)
    slower = timed[0].job.framework.uncertainty.slower_factor
    reach = np.concatenate(widths) * np.where(left_out < 0, slower, 1.0)
    squares = np.square(_DEVIATIONS * left_out / np.maximum(reach, 1e-6))
    share = np.sqrt((_PRIOR_RUNS + squares.sum()) / (_PRIOR_RUNS + len(left_out)))
    return float(np.clip(share, _FEWEST, _MOST))
