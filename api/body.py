"""The raw body of a POST -> a request of the wire contract."""

import json
from http import HTTPStatus
from typing import Any, NoReturn

import fastapi
from starlette.exceptions import HTTPException

from planner.request import Request, parse_request

LARGEST_BODY_BYTES = 2**20


async def read_request(http: fastapi.Request) -> Request:
    """Return the request that a body holds.

    Raises:
        HTTPException: the body is too large, or is not JSON.
        InvalidRequestError: it is JSON, but not of the contract; with every problem at once.
    """
    body = bytearray()
    async for chunk in http.stream():
        body += chunk
        if len(body) > LARGEST_BODY_BYTES:
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body is larger than {LARGEST_BODY_BYTES:,} bytes",
            )
    try:
        return parse_request(_json(bytes(body)))
    except RecursionError:
        raise _malformed("it is nested too deeply") from None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except ValueError as error:
        raise _malformed(str(error)) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _malformed(reason: str) -> HTTPException:
    return HTTPException(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {reason}")
