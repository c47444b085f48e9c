"""Connections of clients that send or read too slowly: closed in time, which uvicorn leaves to a proxy.

`planner serve` names it to uvicorn.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.settings import read_settings

_SETTINGS = read_settings()


class Connection(HttpToolsProtocol):
    """One client's, of uvicorn's own, with a time limit before the body and one on reading; the app has one on the body."""

    _silent: asyncio.TimerHandle | None = None
    """Until a request's headers have come."""
    _unread: asyncio.TimerHandle | None = None
    """Until the client has read some of what waits for it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._wait_for_head()

    def on_message_begin(self) -> None:
        """Wait for its headers."""
        super().on_message_begin()
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        """Leave the rest to the app."""
        _stop(self._silent)
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """Wait until the client reads."""
        super().pause_writing()
        _stop(self._unread)
        # What is closed is written first, which nobody would read.
        self._unread = self.loop.call_later(_SETTINGS.answer_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on, as it reads."""
        _stop(self._unread)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        _stop(self._silent)
        _stop(self._unread)
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        _stop(self._silent)
        self._silent = self.loop.call_later(_SETTINGS.head_seconds, self.transport.close)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
