"""One line of JSON per request, with an id that the answer carries too; no body, no query, no secret."""

import logging
import re
import sys
import time
import uuid
from typing import Any

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.metrics import Metrics

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
"""That a client or a proxy may choose; another is replaced."""
_NOBODY = 499
"""No status of HTTP: the client left before it was answered."""


def configure(kind: str) -> None:
    """Write logs, the server's too, as "json" or as "text"; access is logged here alone."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
    ]
    if kind == "json":
        shown: list[Any] = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    else:
        shown = [structlog.dev.ConsoleRenderer(colors=False)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shown],
        )
    )
    for name in ("api", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").handlers = []
    logging.getLogger("uvicorn.access").disabled = True
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


class Logged:
    """Logs and counts every request."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics
        self._log = structlog.stdlib.get_logger("api")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = _request_id(scope)
        status, sent, began = _NOBODY, 0, time.perf_counter()

        async def send_and_note(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            sent += len(message.get("body", b""))
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self.app(scope, receive, send_and_note)
            finally:
                seconds = time.perf_counter() - began
                self.metrics.count(scope, status, seconds)
                self._log.info(
                    "request",
                    method=scope["method"],
                    path=scope["path"],
                    status=status,
                    seconds=round(seconds, 4),
                    bytes=sent,
                    client=(scope.get("client") or ("",))[0],
                )


def _request_id(scope: Scope) -> str:
    said = Headers(scope=scope).get("x-request-id", "")
    return said if _REQUEST_ID.fullmatch(said) else uuid.uuid4().hex
