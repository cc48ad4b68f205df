"""kafka-python's transports, which deliver the bytes that arrived before the end of the stream.

Owns: the order of bytes and failure when one read gives both; the deadline of a TLS handshake; what kind of server answers
when it does not speak Kafka.
Does not know: the content of an answer, credentials, certificates.
Invariants:
- Bytes reach the decoder before the failure that follows them. A broker sends the refusal of a login and closes at once, so
  both arrive together; the library would drop the refusal (kafka-python 3.0.12, `KafkaTCPTransport._read_from_sock`).
- A failure is a `KafkaError`: any other class would end the library's refresh of the metadata.
"""

from __future__ import annotations

import ssl
from typing import Any

import kafka.errors as kafka_errors
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from connector import runtime

_TLS_ALERT = b"\x15\x03"
"""The first bytes of a TLS alert. As the length of an answer they would be more than 350 MB."""


class NotKafka(kafka_errors.KafkaConnectionError):  # type: ignore[misc]
    """The first bytes of the server are not Kafka's. `speaks`: "TLS" or "HTTP"."""

    def __init__(self, speaks: str) -> None:
        super().__init__(f"the server speaks {speaks}, not Kafka's protocol")
        self.speaks = speaks


class _Delivering:
    """Mixed into both of the library's transports."""

    _net: Any
    _sock: Any
    _protocol: Any
    _read: bool
    _closed: bool
    _heard = False

    async def _read_from_sock(self) -> None:
        while self._read and not self._closed:
            await self._net.wait_read(self._sock)
            data, failure = self._sock_recv()  # type: ignore[attr-defined]
            if len(data):
                self._deliver(data)
            if failure is not None:
                if len(data):
                    # One round of the loop for the coroutine that waits for these bytes: its own reason to close wins.
                    await self._net.sleep(0)
                self.abort(error=failure)  # type: ignore[attr-defined]
                return

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
        except Exception as error:  # noqa: BLE001 -- it would end this coroutine, and nobody would read the connection
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
    """TCP without TLS."""


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
        """Shake hands; ssl.SSLError or OSError where that fails, KafkaTimeoutError at `timeout_at` (monotonic seconds)."""
        while True:
            try:
                self._sock.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self._net.wait_read(self._sock, timeout_at=timeout_at)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(self._sock, timeout_at=timeout_at)
