"""What a race showed, as the command wrote it -> its table. No race is started here."""

from api.body import read_wire
from api.jobs import Reply, reply_of
from planner.race.results import answer_race
from planner.request.raced import RACE_HINT, RaceRequest


def race(body: bytes) -> Reply:
    """Return the table of a race."""
    return reply_of(answer_race(read_wire(RaceRequest, body, RACE_HINT).model_dump()))
