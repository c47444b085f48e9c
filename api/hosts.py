"""The hosts that a request may name: of others, a problem as of all else that is wrong."""

from collections.abc import Sequence
from http import HTTPStatus

from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.headers import SECURITY_HEADERS
from api.problems import ProblemAnswer, plain_problem


class TrustedHosts:
    """Passes on what names a host that is trusted, as Starlette judges it."""

    def __init__(self, app: ASGIApp, trusted: Sequence[str]) -> None:
        self.app = app
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        is_trusted = False
        answer: list[Message] = []

        async def note(*_: object) -> None:
            nonlocal is_trusted
            is_trusted = True

        async def keep(message: Message) -> None:
            answer.append(message)

        await TrustedHostMiddleware(note, self._trusted)(scope, receive, keep)
        if is_trusted:
            await self.app(scope, receive, send)
        elif answer[0]["status"] == HTTPStatus.BAD_REQUEST:
            await _refusal(scope["path"])(scope, receive, send)
        else:  # it leads to www.
            for message in answer:
                await send(message)


def _refusal(path: str) -> ProblemAnswer:
    problem = plain_problem(
        path,
        HTTPStatus.BAD_REQUEST,
        "this service does not answer to the host that the request names",
        hint="whoever runs it can add the host to PLANNER_TRUSTED_HOSTS",
    )
    return ProblemAnswer(problem.model_dump(), problem.status, dict(SECURITY_HEADERS))
