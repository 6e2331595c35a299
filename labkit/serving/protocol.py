"""One connection: what uvicorn's own protocol leaves open to slow, silent or confused clients."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from labkit.serving.errors import APIError

MOST_HEADERS = 64 * 1024  # bytes
HEADERS_S = 30.0  # in which they have to come


class Protocol(HttpToolsProtocol):
    """Lets an answer cut its own connection, refuses what is no HTTP in the API's own shape, and
    bounds headers that come bit by bit, in bytes and in time: nobody knows yet whose they are."""

    late: asyncio.TimerHandle | None = None  # closes a connection that sends no whole headers
    num_bytes = 0  # of headers that aren't whole
    unread = 0  # bytes of the last answer, when it was last looked at

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self.expect_headers()

    def expect_headers(self) -> None:
        self.num_bytes = 0
        self.late = self.late or self.loop.call_later(HEADERS_S, self.transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.late is not None:
            self.num_bytes += len(data)
            if self.num_bytes > MOST_HEADERS and not self.transport.is_closing():
                self.send_400_response(f"its headers are longer than {MOST_HEADERS:,} bytes")
        elif self.cycle and self.cycle.response_complete and not self.timeout_keep_alive_task:
            # The bytes that ended the wait for the next request began none (an empty line, say).
            self.wait_for_client()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["labkit.transport"] = self.transport
        self.expect_headers()

    def on_headers_complete(self) -> None:
        self.headers_came()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self.headers_came()
        super().connection_lost(exc)

    def headers_came(self) -> None:
        if self.late is not None:
            self.late.cancel()
            self.late = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.unread = self.transport.get_write_buffer_size()
        if self.unread and self.transport.is_closing():  # else the wait for a request has begun
            self.wait_for_client()

    def wait_for_client(self) -> None:
        handler = self.timeout_keep_alive_handler
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, handler)

    def timeout_keep_alive_handler(self) -> None:
        """Long after the last answer: one of which its client has read nothing since is thrown
        away. One that is read, however slowly, is waited for."""
        before, self.unread = self.unread, self.transport.get_write_buffer_size()
        if not self.unread:
            super().timeout_keep_alive_handler()
        elif self.unread < before:
            self.wait_for_client()
        else:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        body = APIError(400, f"this is no HTTP request: {msg}").response().body
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
