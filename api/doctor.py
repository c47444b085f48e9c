"""Why a run is slow, fails or is wrong: what may be asked by REST, and what a process does about it."""

from typing import Literal

from pydantic import Field

from api.body import ConfigurationFile, read_wire
from api.fields import in_fields
from api.jobs import Reply, reply_of
from planner.core.errors import InvalidInputError
from planner.doctor.answers import answer_faults, answer_log, answer_timings, said_lines
from planner.doctor.diagnosis import diagnose
from planner.doctor.messages import diagnose_log
from planner.doctor.scripts import look_at
from planner.doctor.timings import Timings
from planner.request.wire import WireModel

_IN_A_SCRIPT = {
    "planner doctor --error FILE": "POST /v1/doctor/log",
    "planner check FILE": "POST /v1/check",
}
_IN_A_LOG = {
    "--error": "text",
    "--plan": "plan",
    "`planner suggest --json`": "POST /v1/suggest",
    "`planner estimate --json`": "POST /v1/estimate",
}
_IN_TIMES = {"--times": "times", "--start-up-seconds": "start_up_seconds"}
LONGEST_LOG = 2**20
"""Characters: a body has no more bytes."""


class TimedRun(WireModel):
    """The whole of one run, start-up included."""

    gpus: int = Field(ge=1, le=100_000)
    seconds: float = Field(gt=0, le=1e9)


class TimingsRequest(WireModel):
    """The same run on several numbers of GPUs."""

    times: list[TimedRun] = Field(min_length=2, max_length=64)
    fixed: Literal["epochs", "steps"] | None = None
    """What the runs had in common."""
    batch_per_gpu: int | None = Field(default=None, ge=1, le=10**9)
    global_batch_size: int | None = Field(default=None, ge=1, le=10**9)
    """Where it was the same on all numbers of GPUs."""
    start_up_seconds: float | None = Field(default=None, ge=0, le=1e6)
    """From the launch to the first step, where it was measured."""
    loader_seconds: float | None = Field(default=None, ge=0, le=1e9)
    """Of iterating the loaders alone, as the largest run did."""


class ScriptsRequest(WireModel):
    """Training scripts; they are read, and never run."""

    scripts: list[ConfigurationFile] = Field(min_length=1, max_length=10)


class LogRequest(WireModel):
    """The log of a run that failed, or one message."""

    text: str = Field(min_length=1, max_length=LONGEST_LOG)
    plan: dict[str, object] | None = None
    """What /v1/suggest or /v1/estimate answered, to compare an out-of-memory message with."""


def timings(body: bytes) -> Reply:
    """Say what times on several numbers of GPUs mean."""
    hint = 'send {"times": [{"gpus": 1, "seconds": 43.1}, {"gpus": 4, "seconds": 48.2}]}'
    asked = read_wire(TimingsRequest, body, hint)
    by_gpus = {each.gpus: each.seconds for each in asked.times}
    if len(by_gpus) < len(asked.times):
        raise InvalidInputError("two times for one number of GPUs", hint=hint, field="times")
    with in_fields(_IN_TIMES):
        found = diagnose(
            Timings(
                seconds=dict(sorted(by_gpus.items())),
                fixed=asked.fixed or "",
                batch_per_gpu=asked.batch_per_gpu,
                global_batch=asked.global_batch_size,
                start_up_seconds=asked.start_up_seconds,
                loader_seconds=asked.loader_seconds,
            )
        )
    return reply_of(answer_timings(found))


def scripts(body: bytes) -> Reply:
    """Say what is wrong with training scripts, by line."""
    hint = 'send {"scripts": [{"name": "train.py", "text": "..."}]}'
    asked = read_wire(ScriptsRequest, body, hint).scripts
    texts = {each.name: each.text.encode("utf-8", "surrogatepass") for each in asked}
    if len(texts) < len(asked):
        raise InvalidInputError("two scripts of one name", hint="a name for each", field="scripts")
    with in_fields(_IN_A_SCRIPT):
        return reply_of(answer_faults({name: look_at(text, name) for name, text in texts.items()}))


def log(body: bytes) -> Reply:
    """Say what a log says happened first, and what followed."""
    asked = read_wire(LogRequest, body, 'send {"text": "RuntimeError: ..."}')
    with in_fields(_IN_A_LOG):
        found = diagnose_log(asked.text.encode("utf-8", "replace"), "the text")
        return reply_of(answer_log(found, said_lines(found, asked.plan)))
