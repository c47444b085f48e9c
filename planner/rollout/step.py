"""A step of GRPO: completions are written, scored and trained on, one after the other."""

from collections.abc import Mapping, Sequence
from itertools import chain

from planner.catalog.rollout import EngineRecord
from planner.core.frozen import frozen
from planner.core.term import Term, add, count, percent, seconds
from planner.step_time.ledger import StepTime
from planner.step_time.terms import StepTerm

GENERATION, HANDOVER, SCORING, TRAINING, BETWEEN = (
    "generation",
    "weights",
    "scoring",
    "training",
    "between",
)
"""The phases of a step, in its order; weights are handed over after training, before the next generation."""


@frozen
class GrpoStep:
    """The ledger of one step, by phase."""

    phases: Mapping[str, tuple[Term, ...]]
    step_seconds: float
    low_seconds: float
    high_seconds: float

    @property
    def terms(self) -> tuple[Term, ...]:
        """Return the terms of all phases: they sum to the step."""
        return tuple(chain.from_iterable(self.phases.values()))

    def seconds_of(self, *names: str) -> float:
        """Return the seconds of some phases."""
        return sum(float(term.amount) for name in names for term in self.phases[name])


def grpo_step(
    generation: Sequence[Term],
    handover: Sequence[Term],
    passes: int,
    training: StepTime,
    record: EngineRecord,
) -> GrpoStep:
    """Return the step of its parts.

        step = (generation + weights + passes x forward + training) x (1 + b)

    Notation: b between_share, fitted on whole steps.

    Args:
        generation: seconds until the last completion is written.
        handover: seconds in which the engine gets the new weights.
        passes: forwards over all completions without a backward: old log-probabilities, those of a reference.
        training: an optimizer step on the completions.
        record: of the engine.

    Leaves out: rewards that take long, such as code that is run or a judge that is asked.
    """
    trained = float(training.step_seconds)
    phases = {
        GENERATION: tuple(generation),
        HANDOVER: tuple(handover),
        SCORING: scoring(passes, training),
        TRAINING: (
            Term(
                name="training", arithmetic=seconds(trained), source="planner/step_time/ledger.py"
            ),
        ),
    }
    own = [each for terms in phases.values() for each in terms]
    between = Term(
        name="between",
        arithmetic=percent(record.between_share) * add(seconds(float(term.amount)) for term in own),
        source=record.source,
    )
    phases[BETWEEN] = (between,)
    total = sum(float(term.amount) for term in (*own, between))
    unsure = record.spread * (total - trained)
    return GrpoStep(
        phases=phases,
        step_seconds=total,
        low_seconds=total - unsure - (trained - float(training.low_seconds)),
        high_seconds=total + unsure + float(training.high_seconds) - trained,
    )


def scoring(passes: int, training: StepTime) -> tuple[Term, ...]:
    """Return the seconds of forwards alone: they wait for links in proportion, and for no optimizer.

    passes x forward x (step - optimizer - reference) / (forward + backward)
    """
    if not passes:
        return ()
    of = {str(term.name): float(term.amount) for term in training.terms}
    forward, backward = of[StepTerm.FORWARD], of[StepTerm.BACKWARD]
    others = (StepTerm.OPTIMIZER, StepTerm.REFERENCE_FORWARD)
    ran = float(training.step_seconds) - sum(of.get(name, 0.0) for name in others)
    arithmetic = (
        count(passes, "forward pass" if passes == 1 else "forward passes")
        * seconds(forward)
        * seconds(ran)
        / (seconds(forward) + seconds(backward))
    )
    return (
        Term(
            name="scoring",
            arithmetic=arithmetic,
            source="TRL 1.16, grpo_trainer.py, _get_per_token_logps_and_entropies",
        ),
    )
