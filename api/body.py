"""The raw body of a POST, read within limits -> what the wire contract says it is."""

from http import HTTPStatus
from typing import Any, TypeVar, get_args

from anyio import move_on_after
from pydantic import Field, ValidationError
from starlette import requests
from starlette.exceptions import HTTPException

from planner.configs.recognise import LARGEST_FILE
from planner.core.errors import (
    MOST_PROBLEMS,
    InvalidInputError,
    InvalidRequestError,
    PlannerError,
    Problem,
    did_you_mean,
)
from planner.core.strict_json import parse_json
from planner.hardware.topology import LARGEST_TEXT
from planner.request.field_problems import what_is_wrong
from planner.request.model import ModelRequest
from planner.request.schema import Request, parse_request
from planner.request.sections import ClusterRequest
from planner.request.wire import WireModel

LARGEST_BODY_BYTES = 2**20
LARGEST_BATCH_BYTES = 2**24
_JSON, _JSON_LINES = "application/json", "application/jsonl"
_A_REQUEST = 'send one JSON object, such as {"model": "gpt2"}'
_LINES = {_JSON_LINES, "application/x-ndjson", "application/ndjson", "application/json-lines"}


class TopologyRequest(WireModel):
    """What some tool printed about the GPUs of one node."""

    text: str = Field(max_length=LARGEST_TEXT)
    """`nvidia-smi topo -m`, `topo -p2p`, `nvlink -s`, or the file of `planner probe --out`."""


class ConfigurationFile(WireModel):
    """A file of another tool; its name's ending says which language it is in."""

    name: str = Field(min_length=1, max_length=200, examples=["ds_config.json"])
    text: str = Field(max_length=LARGEST_FILE)


class CheckRequest(WireModel):
    """Configurations of one run, and what they are for."""

    files: list[ConfigurationFile] = Field(default_factory=list, max_length=10)
    command: str | None = Field(default=None, max_length=2**16)
    """A command line that starts the run."""
    model: ModelRequest | None = None
    cluster: ClusterRequest | None = None
    sequence_length: int | None = Field(default=None, ge=1, le=2**24)


class MalformedError(PlannerError):
    """A body, or a line of a batch, is no JSON."""


class TooLargeError(PlannerError):
    """A body, or a line of one, is larger than is read."""


_SHORTER = {
    "/v1/doctor/log": "send the log from its first error on, or its end: tail --bytes 900000 FILE",
    "/v1/suggest/batch": "send it in parts",
    "/v1/estimate/batch": "send it in parts",
}
Wire = TypeVar("Wire", bound=WireModel)


async def read_body(http: requests.Request) -> bytes:
    """Return the body as it was sent.

    Raises:
        HTTPException: it says that it is no JSON, or is too slow.
        TooLargeError: it is that.
        ClientDisconnect: the client left before it was sent.
    """
    kind = _content_type(http)
    if kind and kind != _JSON and not kind.endswith("+json"):
        raise _wrong_type(kind, _JSON)
    return await read_within(http, LARGEST_BODY_BYTES)


async def read_lines(http: requests.Request) -> tuple[tuple[int, bytes], ...]:
    """Return the lines of a batch that are not empty.

    Each with its number, from 1. All are read before the first is answered: most clients read nothing until all is sent.

    Raises:
        HTTPException: it is no JSON Lines, or is too slow.
        TooLargeError: it is that, or a line is.
        TooOftenError: its client may not ask so much.
        ClientDisconnect: the client left before it was sent.
    """
    kind = _content_type(http)
    if kind and kind not in _LINES:
        raise _wrong_type(kind, _JSON_LINES)
    body = await read_within(http, LARGEST_BATCH_BYTES)
    numbered = enumerate(body.split(b"\n"), start=1)
    lines = tuple((number, line) for number, line in numbered if line.strip())
    if any(len(line) > LARGEST_BODY_BYTES for _, line in lines):
        raise _too_large("a line of the batch", LARGEST_BODY_BYTES, "a request a line")
    await http.app.state.access.count_lines(http, len(lines))
    return lines


async def read_within(http: requests.Request, largest_bytes: int) -> bytes:
    """Return the body, of at most so many bytes.

    Raises:
        HTTPException: it is too slow.
        TooLargeError: it is that.
        ClientDisconnect: the client left before it was sent.
    """
    body = bytearray()
    with move_on_after(http.app.state.work.settings.body_seconds) as limit:
        async for chunk in http.stream():
            body += chunk
            if len(body) > largest_bytes:
                hint = _SHORTER.get(http.url.path, "send less text")
                raise _too_large("the body", largest_bytes, hint)
    if limit.cancelled_caught:
        close = {"Connection": "close"}
        raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, "the body came too slowly", headers=close)
    return bytes(body)


def parse_check_request(body: bytes) -> CheckRequest:
    """Return the request to check configurations that a body holds.

    Raises:
        MalformedError: the body is not JSON.
        InvalidRequestError: it is JSON, but not of the contract; with every problem at once.
    """
    asked = read_wire(CheckRequest, body, 'send {"files": [{"name": "ds.json", "text": "..."}]}')
    names = [each.name for each in asked.files]
    if not names and asked.command is None:
        raise InvalidInputError("nothing to check", hint="give files or a command", field="files")
    if len(set(names)) < len(names):
        raise InvalidInputError("two files of one name", hint="a name for each", field="files")
    return asked


def read_wire(model: type[Wire], body: bytes, hint: str) -> Wire:
    """Return what a body holds, of a part of the wire contract.

    Args:
        model: of what it should hold.
        body: as it was sent.
        hint: what to send.

    Raises:
        MalformedError: the body is not JSON.
        InvalidRequestError: it is JSON, but not of the contract; with every problem at once.
    """
    try:
        return model.model_validate(_json(body, hint))
    except RecursionError:
        raise _malformed("it is nested too deeply", hint) from None
    except ValidationError as error:
        details = error.errors(include_url=False)
        details.sort(key=lambda detail: detail["type"] != "extra_forbidden")
        problems = tuple(_problem(detail, model, hint) for detail in details[:MOST_PROBLEMS])
        raise InvalidRequestError(problems) from None


def read_request(body: bytes) -> Request:
    """Return the request that a body holds.

    Raises:
        MalformedError: the body is not JSON.
        InvalidRequestError: it is JSON, but not of the contract; with every problem at once.
    """
    payload = _json(body, _A_REQUEST)
    try:
        return parse_request(payload)
    except RecursionError:
        raise _malformed("it is nested too deeply", _A_REQUEST) from None


def _content_type(http: requests.Request) -> str:
    return http.headers.get("content-type", "").partition(";")[0].strip().lower()


def _wrong_type(kind: str, right: str) -> HTTPException:
    said = f"the body is {kind[:80]!r}: send it with the header content-type: {right}"
    return HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, said)


def _too_large(what: str, most_bytes: int, hint: str) -> TooLargeError:
    return TooLargeError(f"{what} is larger than {most_bytes:,} bytes", hint)


def _problem(detail: Any, model: type[WireModel], hint: str) -> Problem:
    *above, last = [str(step) for step in detail["loc"]] or [""]
    field = ".".join([*above, last])
    if detail["type"] == "extra_forbidden":
        known = _section(model, above).model_fields
        near = did_you_mean(last, known) or f"known: {', '.join(known)}"
        return Problem(field=field, message=f"unknown field {field[:80]!r}", hint=near)
    message = f"{field or 'the request'}: {what_is_wrong(detail)}"
    return Problem(field=field, message=message, hint=hint)


def _section(model: type[WireModel], path: list[str]) -> type[WireModel]:
    for step in path:
        if step in model.model_fields:
            wanted = model.model_fields[step].annotation
            parts = [each for each in (wanted, *get_args(wanted)) if isinstance(each, type)]
            model = next((each for each in parts if issubclass(each, WireModel)), model)
    return model


def _json(body: bytes, hint: str) -> Any:
    try:
        return parse_json(body)
    except ValueError as error:
        raise _malformed(str(error), hint) from None


def _malformed(reason: str, hint: str) -> MalformedError:
    return MalformedError(f"the body is not JSON: {reason}", hint)
