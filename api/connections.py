"""Connections on which no request comes, or too slowly: closed in time, which uvicorn leaves to a proxy.

`uvicorn api.main:app --http api.connections:Connection`.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.settings import Settings

_HEAD_SECONDS = Settings().head_seconds


class Connection(HttpToolsProtocol):
    """One client's, of uvicorn's own, with a time limit before the body, which has another."""

    _late: asyncio.TimerHandle | None = None

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
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._stop_waiting()
        self._late = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
