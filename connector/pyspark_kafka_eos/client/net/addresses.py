"""From a broker's name to a connected socket: every address of the name is tried, and none holds up the others.

Owns: which address is tried when (RFC 8305's staggered attempts), the look-up of names.
Does not know: what is spoken on the socket.
Invariants:
- A name is looked up beside the loop's thread, anew for each connection.
- Of several sockets that connect the first is kept, and the others are closed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
from typing import Any

from pyspark_kafka_eos.client.net.failures import ConnectionFailed, NameFailed, of_system
from pyspark_kafka_eos.client.net.loop import Loop
from pyspark_kafka_eos.client.net.transport import set_options

_NEXT_AFTER_S = 0.5
"""How long an address has before the next one is tried beside it. RFC 8305 has 0.25 s. Half connects twice to a far
broker, which logs each of them; with double a silent address costs a second of each new connection.
"""

Address = tuple[Any, ...]
Found = list[tuple[int, int, int, Address]]
"""Family, kind, protocol and address of each way to a name."""


def look_up(host: str, port: int) -> Found:
    """The addresses of a name. Waits for the name service. NameFailed; ConnectionFailed where it cannot be a name."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise NameFailed(f"{host} has no address: {error.strerror}", error.errno) from None
    except OSError as error:
        raise NameFailed(f"{host} cannot be looked up: {of_system(error)}", None) from None
    except (ValueError, OverflowError) as error:
        # A broker has named this address: a name that is none (UnicodeError), a port of more than 16 bits.
        raise ConnectionFailed(f"{host!r}:{port} is no address: {error}") from None
    return [(family, kind, number, address) for family, kind, number, _, address in found]


async def connected(loop: Loop, host: str, port: int, unacknowledged_ms: int) -> Any:
    """A socket that is connected to one of the host's addresses. ConnectionFailed with the reason of each."""
    # An address of digits is not asked for.
    found = look_up(host, port) if _is_number(host) else await loop.beside(lambda: look_up(host, port))
    if not found:
        raise NameFailed(f"{host} has no address", None)
    # Another one first each time, so that a silent one is not every connection's delay; families take turns.
    begin = random.randrange(len(found))
    return await _first(loop, _alternating(found[begin:] + found[:begin]), unacknowledged_ms)


async def _first(loop: Loop, found: Found, unacknowledged_ms: int) -> Any:
    attempts: set[asyncio.Task[Any]] = set()
    failures: list[str] = []
    left = list(found)
    try:
        while left or attempts:
            if left:
                attempts.add(loop.task(_connect(loop, *left.pop(0), unacknowledged_ms)))
            done, attempts = await asyncio.wait(
                attempts, timeout=_NEXT_AFTER_S if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            kept: Any = None
            for each in done:
                sock, failure = each.result()
                if sock is None:
                    failures.append(failure)
                elif kept is None:
                    kept = sock
                else:
                    sock.close()
            if kept is not None:
                return kept
    finally:
        for each in attempts:
            each.cancel()
            each.add_done_callback(_close_late)
    raise ConnectionFailed("; ".join(failures))


def _close_late(attempt: asyncio.Task[Any]) -> None:
    # It had its result before it could be cancelled.
    if not attempt.cancelled() and attempt.exception() is None and (sock := attempt.result()[0]) is not None:
        sock.close()


async def _connect(
    loop: Loop, family: int, kind: int, number: int, address: Address, unacknowledged_ms: int
) -> tuple[Any, str]:
    """A connected socket, or None and why not."""
    sock: Any = None
    try:
        sock = socket.socket(family, kind, number)
        sock.setblocking(False)
        set_options(sock, unacknowledged_ms)
        await loop.asyncio.sock_connect(sock, address)
    except (OSError, OverflowError) as error:
        if sock is not None:
            sock.close()
        reason = of_system(error) if isinstance(error, OSError) else str(error)
        return None, f"cannot connect to {address[0]}: {reason}"
    except BaseException:
        if sock is not None:
            sock.close()
        raise
    return sock, ""


def _alternating(found: Found) -> Found:
    """A name with addresses of both families: one of each in turn, where one family leads nowhere."""
    first = [each for each in found if each[0] == found[0][0]]
    other = [each for each in found if each[0] != found[0][0]]
    ordered: Found = []
    while first or other:
        ordered += first[:1] + other[:1]
        first, other = first[1:], other[1:]
    return ordered


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
