"""Connections of clients that send or read too slowly: closed in time, which uvicorn leaves to a proxy.

`planner serve` names it to uvicorn.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.settings import read_settings

_SETTINGS = read_settings()
_LARGEST_HEAD = 2**17
"""Bytes before a body: a link of a plan carries what was asked, and the machine; the parser copies all at each part that comes."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Connection(HttpToolsProtocol):
    """One client's, of uvicorn's own, with limits on time and size before the body, and on the time to read; the app has those on the body."""

    _silent: asyncio.TimerHandle | None = None
    """Until a request's headers have come."""
    _unread: asyncio.TimerHandle | None = None
    """Until the client has read some of what waits for it."""
    _head_bytes: int | None = 0
    """That came of a request's headers; None when they have all come."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Take what came, and leave a client whose headers have no end."""
        super().data_received(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > _LARGEST_HEAD:
                self.transport.write(_TOO_LARGE)
                self.transport.close()

    def on_message_begin(self) -> None:
        """Wait for its headers."""
        super().on_message_begin()
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        """Leave the rest to the app."""
        _stop(self._silent)
        self._head_bytes = None
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
        self._head_bytes = 0
        _stop(self._silent)
        self._silent = self.loop.call_later(_SETTINGS.head_seconds, self.transport.close)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
