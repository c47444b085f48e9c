"""What a process of the service is asked to do: a request in as it came, the answer's bytes out.

Nothing here knows the server: it may be called in any process. A `token` opens its owner's models of the Hub.
"""

import gc
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from api.body import TopologyRequest, parse_check_request, read_request, read_wire
from api.fields import described_by_field, urn_of
from planner import answers
from planner.accuracy.kept import kept
from planner.answers.replicas import answer_replicas, replicas_request
from planner.core.errors import InvalidInputError, PlannerError
from planner.gate.configurations import COMMAND, Asked, judge_configurations
from planner.gate.verdict import verdicts_answer
from planner.generate.archive import zip_files
from planner.generate.write_bundle import bundle_files
from planner.hardware.topology import parse_topology
from planner.models.hub_client import asking_with
from planner.request.model import load_model


class Reply(NamedTuple):
    """An answer as it goes out."""

    body: bytes
    tag: str
    """The same for the same answer, whenever and wherever it was computed."""


def warm() -> None:
    """Read what every plan needs, and leave it out when garbage is looked for: it stays."""
    suggestion(b'{"model": "gpt2"}')
    gc.freeze()


def suggestion(body: bytes, token: str = "") -> Reply:
    """Recommend a strategy."""
    asked = read_request(body)
    with asking_with(token):
        resolved, plan = answers.suggest(asked, allow_paths=False)
    answer = answers.answer_suggestion(asked, resolved, plan)
    # How long the search took tells no answers apart.
    return reply_of(answer, {**answer, "search": None})


def estimation(body: bytes, token: str = "") -> Reply:
    """Estimate one strategy."""
    with asking_with(token):
        return reply_of(answers.answer_estimate(read_request(body), allow_paths=False))


def memory(body: bytes, token: str = "") -> Reply:
    """Say where the memory of one layout goes."""
    with asking_with(token):
        resolved, candidate = answers.memory_request(read_request(body), allow_paths=False)
    return reply_of(answers.answer_memory(resolved.job, candidate))


def replicas(body: bytes, token: str = "") -> Reply:
    """Compare ways to train whole replicas."""
    with asking_with(token):
        resolved, found = replicas_request(read_request(body), allow_paths=False)
    return reply_of(answer_replicas(resolved, found))


def bundle(body: bytes, token: str = "") -> Reply:
    """Write the launch files of a plan, each as a text."""
    return reply_of({"files": _files(body, token)})


def zipped_bundle(body: bytes, token: str = "") -> Reply:
    """Write the launch files of a plan into a zip."""
    archive = zip_files(_files(body, token), folder="plan")
    return Reply(archive, hashlib.sha256(archive).hexdigest())


def topology(body: bytes) -> Reply:
    """Read how the GPUs of one node are connected."""
    asked = read_wire(TopologyRequest, body, 'send {"text": "..."}')
    try:
        parsed = parse_topology(asked.text)
    except InvalidInputError as error:
        raise InvalidInputError(error.message, error.hint, field="text") from None
    return reply_of(parsed.to_wire())


def check(body: bytes, token: str = "") -> Reply:
    """Judge configurations of other tools."""
    asked = parse_check_request(body)
    texts = {each.name: each.text for each in asked.files}
    fields = {each.name: f"files.{index}" for index, each in enumerate(asked.files)}
    if asked.command is not None:
        texts[COMMAND], fields[COMMAND] = asked.command, "command"
    known = Asked(
        model=asked.model,
        cluster=asked.cluster.model_dump(exclude_unset=True) if asked.cluster else {},
        recipe={"sequence_length": asked.sequence_length} if asked.sequence_length else {},
        allow_paths=False,
        fields=fields,
    )
    with asking_with(token):
        verdict = judge_configurations(texts, known)
    return reply_of(verdicts_answer((verdict,)))


def model(name: str, token: str = "") -> Reply:
    """Describe a model."""
    with asking_with(token):
        described, notes = load_model(name, allow_paths=False)
    return reply_of({**answers.answer_model(described), "notes": notes})


def accuracy(source: str) -> Reply:
    """Say how well the published runs of a source are predicted."""
    return reply_of(asdict(kept(source).figures))


def suggested_line(line: bytes, token: str = "") -> bytes:
    """Recommend a strategy to one line of a batch, or say what is wrong with it."""
    return _line(suggestion, line, token)


def estimated_line(line: bytes, token: str = "") -> bytes:
    """Estimate the strategy of one line of a batch, or say what is wrong with it."""
    return _line(estimation, line, token)


def refused_line(line: bytes, error: PlannerError) -> bytes:
    """Return what a line of a batch is answered that has no answer, under its id if it has one."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        said = None
    answer = answers.answer_error(error, answers.request_id(said))
    described = {**described_by_field(answer["error"]), "type": urn_of(error)}
    return to_json({**answer, "error": described})


def to_json(content: Any) -> bytes:
    """Return JSON in ASCII: a request may hold half of a surrogate pair, and answers echo it."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def reply_of(answer: Any, hashed: Any = None) -> Reply:
    """Return an answer in bytes; its tag is of `hashed`, where not all of the answer tells it apart."""
    body = to_json(answer)
    told_apart = body if hashed is None else to_json(hashed)
    return Reply(body, hashlib.sha256(told_apart).hexdigest())


def _line(job: Callable[[bytes, str], Reply], line: bytes, token: str) -> bytes:
    try:
        return job(line, token).body
    except PlannerError as error:
        return refused_line(line, error)


def _files(body: bytes, token: str) -> Mapping[str, str]:
    asked = read_request(body)
    with asking_with(token):
        resolved, plan = answers.suggest(asked, allow_paths=False)
    return bundle_files(plan, answers.answer_plan(resolved, plan, None), asked.files)
