"""kafka-python's transports, which read and write in fewer steps, and deliver the bytes that arrived before the end of
the stream.

Owns: the order of bytes and failure when one read gives both; the deadline of a TLS handshake; what kind of server
answers when it does not speak Kafka; when bytes go to the socket.
Does not know: the content of an answer, credentials, certificates.
Invariants:
- Bytes reach the decoder before the failure that follows them. A broker sends the refusal of a login and closes at
  once, so both arrive together; the library would drop the refusal (kafka-python 3.0.12,
  `KafkaTCPTransport._read_from_sock`).
- A failure is a `KafkaError`: any other class would end the library's refresh of the metadata.
- Bytes leave in the order in which they were written.

The library makes a task for each write and registers the socket anew for each answer. Between records of megabytes the
interpreter's own code is in no cache, so each step costs: of a Produce request of 1 MB they took 0.48 ms outside of the
kernel with the library's steps, and 0.40 with these (medians of twelve runs each, ready-made batches).
"""

from __future__ import annotations

import contextlib
import itertools
import ssl
from collections.abc import Iterable
from typing import Any

import kafka.errors as kafka_errors
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from kafka_core import runtime
from pyspark_kafka_eos.client.net.loop import Loop

_READ_BYTES = 64 * 1024
"""Read at once; answers are small, and `fast_socket` reads those with records. Half takes a second look for many
answers that came together; double only moves more memory.
"""

_MOST_PIECES = 1_024
"""Of one call that writes (Linux' IOV_MAX)."""

_TLS_ALERT = b"\x15\x03"
"""The first bytes of a TLS alert. As the length of an answer they would be more than 350 MB."""


class NotKafka(kafka_errors.KafkaConnectionError):  # type: ignore[misc]
    """The first bytes of the server are not Kafka's. `speaks`: "TLS" or "HTTP"."""

    def __init__(self, speaks: str) -> None:
        super().__init__(f"the server speaks {speaks}, not Kafka's protocol")
        self.speaks = speaks

    def __reduce__(self) -> tuple[type[NotKafka], tuple[str]]:
        return NotKafka, (self.speaks,)


class _Delivering:
    """Mixed into both of the library's transports."""

    _net: Loop
    _sock: Any
    _protocol: Any
    _read: bool
    _read_task: Any
    _closed: bool
    _heard = False

    def resume_reading(self) -> None:
        """Deliver what arrives from now on."""
        if not self._read:
            self._read = True
            self._read_task = self._net.watch(self._sock, self._read_now)

    def pause_reading(self) -> None:
        """Leave what arrives where it is."""
        self._read = False
        if self._sock is not None and self._read_task is not None:
            self._net.unwatch(self._sock, self._read_task)

    def _read_now(self) -> None:
        if not self._read or self._closed:
            # Closing: bytes that are left to write still go out.
            self.pause_reading()
            return
        data, failure = self._sock_recv()  # type: ignore[attr-defined]
        if len(data):
            self._deliver(data)
        if failure is None:
            return
        self.pause_reading()
        if len(data):
            # One round of the loop for the coroutine that waits for these bytes: its own reason to close wins.
            self._net.call_later(0, lambda: self.abort(error=failure))  # type: ignore[attr-defined]
        else:
            self.abort(error=failure)  # type: ignore[attr-defined]

    def _deliver(self, data: Any) -> None:
        if not self._heard:
            self._heard = True
            stranger = _stranger(bytes(data[:4]))
            if stranger:
                self.abort(error=NotKafka(stranger))  # type: ignore[attr-defined]
                return
        self.last_read = runtime.monotonic()
        try:
            self._protocol.data_received(data)
        except kafka_errors.KafkaProtocolError as error:
            self.abort(error=error)  # type: ignore[attr-defined]
        except Exception as error:  # noqa: BLE001 -- it would end the watch, and nobody would read the connection
            self.abort(error=kafka_errors.KafkaProtocolError(f"{type(error).__name__}: {error}"))  # type: ignore[attr-defined]

    def _sock_send(self) -> tuple[int, Exception | None]:
        sent, failure = super()._sock_send()  # type: ignore[misc]
        if failure is not None and self._sock is not None:
            # A server that refuses a client certificate says so and closes: the alert waits to be read.
            _, reading = self._sock_recv()  # type: ignore[attr-defined]
            if reading is not None and isinstance(_cause(reading), ssl.SSLError):
                failure = reading
        return sent, failure


def _stranger(head: bytes) -> str | None:
    if head.startswith(_TLS_ALERT):
        return "TLS"
    return "HTTP" if head == b"HTTP" else None


def _cause(failure: Exception) -> object:
    return failure.args[0] if failure.args else failure


class PlainTransport(_Delivering, KafkaTCPTransport):  # type: ignore[misc]
    """TCP without TLS. What is written in one round of the loop goes to the socket at its end, in one call; the
    library's task takes what the socket does not.
    """

    def write(self, data: Any) -> None:
        """Send these bytes behind all earlier ones; ValueError where there are none, RuntimeError after the end."""
        if not data:
            raise ValueError("there are no bytes to write")
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Send these bytes behind all earlier ones; RuntimeError after the end."""
        if self._closed or not self._write:
            raise RuntimeError("the connection takes no more bytes")
        # Bytes that wait have the end of this round, or the library's task, before them already.
        first = not self._write_buffer
        self._write_buffer.extend(list_of_data)
        if first and not self._writing:
            self._net.at_end_of_round(self._write_now)

    def _write_now(self) -> None:
        """Write what the socket takes; the library's task writes any rest.

        On its own, that task waits on the selector first, for a socket that is nearly always writable, and then makes a
        call for each piece.
        """
        waiting = self._write_buffer
        if not waiting:
            return
        if not self._closed:
            with contextlib.suppress(OSError):  # the task gets the same error and handles it
                self._drop(self._sock.sendmsg(list(itertools.islice(waiting, _MOST_PIECES))))
        if waiting or self._closed:
            self._writing = True
            self._write_task = self._net.call_soon(self._write_to_sock)

    def _drop(self, sent: int) -> None:
        """Forget the bytes that were sent."""
        self.last_write = runtime.monotonic()
        waiting = self._write_buffer
        while waiting and sent >= len(waiting[0]):
            sent -= len(waiting.popleft())
        if sent:
            waiting[0] = memoryview(waiting[0])[sent:]

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        """What has arrived, and the failure after which nothing follows. What is left is found by the loop's next
        look.
        """
        try:
            data: bytes = self._sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return b"", None
        except OSError as error:
            return b"", kafka_errors.KafkaConnectionError(error)
        return data, None if data else kafka_errors.KafkaConnectionError("socket disconnected")


class TlsTransport(_Delivering, KafkaSSLTransport):  # type: ignore[misc]
    """TLS over TCP. `handshake_until` comes before anything else."""

    def __init__(self, net: Any, sock: Any, host: str, context: ssl.SSLContext) -> None:
        super().__init__(net, sock, host=host, ssl_context=context)

    @property
    def cipher(self) -> str:
        """OpenSSL's name of the cipher suite in use; empty before the handshake."""
        used = self._sock.cipher()
        return used[0] if used else ""

    async def handshake_until(self, timeout_at: float | None) -> None:
        """Shake hands; ssl.SSLError or OSError where that fails, KafkaTimeoutError at `timeout_at` (monotonic
        seconds).
        """
        while True:
            try:
                self._sock.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self._net.wait_read(self._sock, timeout_at=timeout_at)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(self._sock, timeout_at=timeout_at)
