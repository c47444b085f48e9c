"""What every answer begins with, and what a request without an answer gets."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from planner.core.errors import InvalidRequestError, NothingFitsError, PlannerError

if TYPE_CHECKING:
    from planner.answers.shapes import Accepted, ErrorAnswer, RefusedAnswer

SCHEMA_VERSION = "1.0"
"""Minor: fields were added. Major: fields changed."""


def accepted(request_id: str | int | None) -> Accepted:
    """Return what stands before an answer."""
    return {"id": request_id, "ok": True, "schema_version": SCHEMA_VERSION}


def answer_error(error: PlannerError, request_id: str | int | None = None) -> RefusedAnswer:
    """Return a failed line of a batch."""
    return {"id": request_id, "ok": False, "error": describe_error(error)}


def describe_error(error: PlannerError) -> ErrorAnswer:
    """Return what is wrong, where, and what to do; every problem of a request body."""
    described: ErrorAnswer = {
        "type": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "field": error.field,
    }
    if isinstance(error, InvalidRequestError):
        described["problems"] = [asdict(problem) for problem in error.problems]
    if isinstance(error, NothingFitsError) and error.ways_out:
        described["ways_out"] = [asdict(each) for each in error.ways_out]
    return described
