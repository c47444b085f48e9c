"""Headers that every answer carries, answers that a client has already, and bodies that nobody read."""

from collections.abc import Mapping
from hashlib import sha256
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self'; object-src 'none';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}


_SECRETS = ("authorization", "x-api-key", "x-hf-token")
"""With one of these, what is answered may be its owner's alone."""
UNKEPT = {"Cache-Control": "no-store"}
"""Of failures: the next one who asks may have an answer."""


class SecurityHeaders:
    """Adds the headers, and who may keep an answer; answers HEAD as the GET that it asks about."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        asked = Headers(scope=scope) if scope["type"] == "http" else {}
        is_secret = any(name in asked for name in _SECRETS)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                if is_secret:
                    headers.update(UNKEPT)
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        if scope.get("method") == "HEAD":
            scope = {**scope, "method": "GET"}
        await self.app(scope, receive, send_with_headers)


class Unread:
    """Closes a connection whose request was answered before its body was read: it may have no end."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        headers = Headers(scope=scope) if scope["type"] == "http" else {}
        is_unread = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"

        async def receive_and_note() -> Message:
            nonlocal is_unread
            message = await receive()
            is_unread &= bool(message.get("more_body", False))
            return message

        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start" and is_unread:
                MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        await self.app(scope, receive_and_note, send_and_close)


class Tagged:
    """Gives what a GET is answered, whole and untagged, a tag of its content: a weak one, as it may be compressed later."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and hold the head of its answer until the body is known."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self.app(scope, receive, send)
            return
        held: Message | None = None

        async def send_tagged(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start":
                held = message
                return
            if held is not None:
                headers = MutableHeaders(scope=held)
                if held["status"] == HTTPStatus.OK and not message.get("more_body", False):
                    headers.setdefault("ETag", f'W/"{sha256(message["body"]).hexdigest()}"')
                await send(held)
                held = None
            await send(message)

        await self.app(scope, receive, send_tagged)


class KnownAnswers:
    """Answers 304 where a GET names the tag of what would be answered; RFC 9110 has no 304 for other methods."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and of the answer no more than the client lacks."""
        is_read = scope["type"] == "http" and scope["method"] in {"GET", "HEAD"}
        named = Headers(scope=scope).get("if-none-match", "") if is_read else ""
        if not named:
            await self.app(scope, receive, send)
            return
        known = {tag.strip().removeprefix("W/") for tag in named.split(",")}
        is_known = False

        async def send_what_is_new(message: Message) -> None:
            nonlocal is_known
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                tag = headers.get("etag", "").removeprefix("W/")
                is_known = message["status"] == HTTPStatus.OK and bool({tag, "*"} & known - {""})
                if is_known:
                    message = {**message, "status": int(HTTPStatus.NOT_MODIFIED)}
                    del headers["content-length"], headers["content-type"]
            elif is_known:
                message = {**message, "body": b""}
            await send(message)

        await self.app(scope, receive, send_what_is_new)
