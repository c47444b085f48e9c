"""The raw body of a POST -> what the wire contract says it is."""

import json
from http import HTTPStatus
from typing import Any, NoReturn

import fastapi
from pydantic import Field, ValidationError
from starlette.exceptions import HTTPException

from planner.core.errors import InvalidRequestError, Problem, did_you_mean
from planner.hardware.topology import LARGEST_TEXT
from planner.request.cluster import WireModel
from planner.request.schema import Request, parse_request

LARGEST_BODY_BYTES = 2**20


class TopologyRequest(WireModel):
    """What some tool printed about the GPUs of one node."""

    text: str = Field(max_length=LARGEST_TEXT)
    """`nvidia-smi topo -m`, `topo -p2p`, `nvlink -s`, or the file of `planner probe --out`."""


async def read_topology_request(http: fastapi.Request) -> TopologyRequest:
    """Return the request to read a topology that a body holds.

    Raises:
        HTTPException: the body is too large, or is not JSON.
        InvalidRequestError: it is JSON, but not of the contract; with every problem at once.
    """
    payload = await _payload(http)
    try:
        return TopologyRequest.model_validate(payload)
    except ValidationError as error:
        problems = tuple(_problem(detail) for detail in error.errors(include_url=False))
        raise InvalidRequestError(problems) from None


async def read_request(http: fastapi.Request) -> Request:
    """Return the request that a body holds.

    Raises:
        HTTPException: the body is too large, or is not JSON.
        InvalidRequestError: it is JSON, but not of the contract; with every problem at once.
    """
    payload = await _payload(http)
    try:
        return parse_request(payload)
    except RecursionError:
        raise _malformed("it is nested too deeply") from None


async def _payload(http: fastapi.Request) -> Any:
    body = bytearray()
    async for chunk in http.stream():
        body += chunk
        if len(body) > LARGEST_BODY_BYTES:
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body is larger than {LARGEST_BODY_BYTES:,} bytes",
            )
    try:
        return _json(bytes(body))
    except RecursionError:
        raise _malformed("it is nested too deeply") from None


def _problem(detail: Any) -> Problem:
    field = ".".join(str(step) for step in detail["loc"])
    if detail["type"] == "extra_forbidden":
        known = TopologyRequest.model_fields
        hint = did_you_mean(field, known) or f"known: {', '.join(known)}"
        return Problem(field=field, message=f"unknown field {field[:80]!r}", hint=hint)
    message = f"{field or 'the request'}: {detail['msg']}"
    return Problem(field=field, message=message, hint='send {"text": "..."}')


def _json(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except ValueError as error:
        raise _malformed(str(error)) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _malformed(reason: str) -> HTTPException:
    return HTTPException(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {reason}")
