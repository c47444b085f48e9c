"""Whether some of the GPUs do as well as all of them."""

import math

from planner.advice.rules.base import ONE_PER_SEQUENCE, Situation
from planner.advice.rules.batch import WORTH_THE_GPUS
from planner.search.search import TIE


def fewer_gpus(situation: Situation) -> str | None:
    """Return on which of the GPUs a step is as fast as on more of them; None where all of them are faster.

    The fewest of those that estimates do not tell from the fastest. A GPU for each sequence is also enough
    where more of them would only divide a model that each can hold, for less than that is worth.
    """
    here = float(situation.candidate.step_time.step_seconds)
    fewer = {
        name: float(each.step_time.step_seconds)
        for name, each in situation.on_fewer_gpus.items()
        if each.is_comfortable
    }
    longest = TIE * min([here, *fewer.values()])
    alike = [name for name, seconds in fewer.items() if seconds <= longest]
    if alike:
        return alike[0]
    shared = fewer.get(ONE_PER_SEQUENCE, math.inf)
    is_enough = situation.fits_on_one_gpu and shared <= WORTH_THE_GPUS * here
    return ONE_PER_SEQUENCE if is_enough else None
