"""SCRAM as the client has it, with delegation tokens (KIP-48) and bounds (RFC 5802, RFC 7677).

Owns: what the library's exchange lacks: the extension `tokenauth`, and how much work a server may ask for.
Does not know: requests, where user and password come from.
Invariants: no key is derived before the iterations are judged, so neither a stall nor a cheap guess is a server's to
choose.
"""

from __future__ import annotations

import re
from typing import Any

from kafka.net.sasl.scram import SaslMechanismScram, ScramClient

LEAST_ITERATIONS = 4_096
"""RFC 7677's least, and Kafka's. With half, a server that records the proof guesses passwords twice as fast."""

MOST_ITERATIONS = 100_000
"""Six times the most that Apache Kafka lets a user have (16,384). 100,000 take 0.1 s of the connections' only thread;
double stalls every connection of the process for twice as long at each login, half could refuse a careful operator.
"""

_ITERATIONS = re.compile(rb"(?:^|,)i=([^,]*)")
_TOKEN = b",tokenauth=true"


class Scram(SaslMechanismScram):  # type: ignore[misc]
    """One exchange. `by_token`: user and password are the id and the HMAC of a delegation token."""

    def __init__(self, *, by_token: bool, **config: Any) -> None:
        super().__init__(**config)
        self._scram_client = _Client(
            config["sasl_plain_username"], config["sasl_plain_password"], config["sasl_mechanism"], by_token
        )


class _Client(ScramClient):  # type: ignore[misc]
    def __init__(self, user: str, password: str, mechanism: str, by_token: bool) -> None:
        super().__init__(user, password, mechanism)
        self._more = _TOKEN if by_token else b""

    def first_message(self) -> bytes:
        """The client's first message. The extension is signed like the rest of it."""
        message: bytes = super().first_message() + self._more
        self.auth_message += self._more
        return message

    def process_server_first_message(self, server_first_message: bytes) -> None:
        """ValueError where the server asks for too little work or for too much."""
        judge(server_first_message)
        super().process_server_first_message(server_first_message)


def judge(message: bytes) -> None:
    """ValueError with the reason where the iterations of a server's first message are out of bounds."""
    found = _ITERATIONS.search(message)
    text = b"" if found is None else found[1]
    # Kafka's numbers have five digits; int() of a million of them would take seconds itself.
    if not text.isdigit() or len(text) > 20:
        raise ValueError("its first message of SCRAM has no number of iterations")
    count = int(text)
    if not LEAST_ITERATIONS <= count <= MOST_ITERATIONS:
        raise ValueError(
            f"it asks for {count} iterations of SCRAM, and this client takes {LEAST_ITERATIONS} to {MOST_ITERATIONS} "
            "(Apache Kafka's users have 4096 to 16384)"
        )
