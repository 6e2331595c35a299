"""One request on its way through the router: what can end it, and how it goes on after a loss."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")  # of a server-sent event
MOST_HELD = 1024 * 1024  # bytes of an unfinished event


class Ended(Exception):
    """A flight was ended from outside; the text says why."""


class Flight:
    """Runs under a deadline until the first byte, then under a limit of silence; both can be cut.

    So whoever has a reason can end it: its client has left, the replica is known to be dead, the
    router shuts down. A task to wait for each of them would cost more than the answer's bytes.
    """

    def __init__(self):
        self.limit: asyncio.Timeout | None = None
        self.timer: asyncio.TimerHandle | None = None  # looks for silence
        self.silent_since: float | None = None  # the replica's turn; None: the client's
        self.why: str | None = None  # this attempt was ended from outside
        self.over: str | None = None  # and no other attempt will be made
        self.has_left = False  # its client
        self.has_begun = False  # something of the answer was sent to the client
        self.is_stream = False  # and that is server-sent events
        self.may_move: Callable[[], bool] = lambda: False  # another replica would get it

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        """Raises Ended when no first byte has come by then, or when `end` is called."""
        self.why = None
        try:
            async with asyncio.timeout(seconds) as self.limit:
                if self.over:
                    self.end(self.over)
                yield
        except TimeoutError as error:
            if not self.limit.expired():
                raise  # somebody else's: of the connection
            raise Ended(self.why or f"no first byte came within {seconds:g} s") from error
        finally:
            self.limit = None
            if self.timer is not None:
                self.timer.cancel()

    def has_first_byte(self, most_silent: float) -> None:
        """From now on the replica may be silent for `most_silent` seconds, however long it takes.

        There is one timer, which looks how long it has been: to set one for each piece would
        cost a tenth of the router's work on it. Raises Ended when `end` was called already, in
        the same turn of the loop: to reschedule would call that off.
        """
        if self.why:
            raise Ended(self.why)
        self.limit.reschedule(None)
        loop = asyncio.get_running_loop()

        def look() -> None:
            since = loop.time() if self.silent_since is None else self.silent_since
            if loop.time() - since >= most_silent:
                self.end(f"nothing more came within {most_silent:g} s")
            else:
                self.timer = loop.call_at(since + most_silent, look)

        self.timer = loop.call_later(most_silent, look)

    def end(self, why: str) -> None:
        """Ends this attempt now, wherever it waits. The first reason counts."""
        if self.limit is not None and self.why is None and not self.limit.expired():
            self.why = why
            self.limit.reschedule(0.0)

    def stop(self, why: str) -> None:
        """Ends it for good."""
        self.over = self.over or why
        self.end(why)

    def leave(self) -> None:
        self.has_left = True
        self.stop("the client left")


class WholeEvents:
    """Lets through the bytes of whole server-sent events, and keeps back the beginning of one: if
    the replica is lost now, the client must not take half an event for one."""

    def __init__(self):
        self.held = b""

    def take(self, data: bytes) -> bytes:
        if self.held:
            data, self.held = self.held + data, b""
        if data.endswith(ENDS):
            return data
        cut = max(data.rfind(end) + len(end) if end in data else 0 for end in ENDS)
        if len(data) - cut > MOST_HELD:
            return data
        self.held = data[cut:]
        return data[:cut]
