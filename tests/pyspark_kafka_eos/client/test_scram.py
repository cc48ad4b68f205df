"""SCRAM beyond the library's: delegation tokens, and a broker that asks for too little work or for too much."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kafka_core.errors import LoginRefused, ProtocolViolation
from pyspark_kafka_eos.client.net.credentials import scram
from pyspark_kafka_eos.client.net.credentials.scram import LEAST_ITERATIONS, MOST_ITERATIONS, server_first
from tests.pyspark_kafka_eos.client.listener import Listener
from tests.pyspark_kafka_eos.client.test_login import connects, login, refused, settings

Opened = Callable[..., Listener]
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
TOKEN = {"token-1": "aG1hYw=="}


@pytest.fixture
def opened() -> Iterator[Opened]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Listener(**options))


def by_token(mechanism: str, name: str = "token-1", hmac: str = "aG1hYw==") -> dict[str, str]:
    """A login by delegation token, as Spark and Java write it."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "security__protocol": "SASL_PLAINTEXT", "sasl__mechanism": mechanism,
        "sasl__jaas__config": f'{module} required tokenauth="true" username="{name}" password="{hmac}";',
    }  # fmt: skip


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_delegation_token_logs_in_with_tokenauth_and_a_password_without(opened: Opened, mechanism: str) -> None:
    listener = opened(mechanisms=MECHANISMS, users={**TOKEN, "alice": "wonderland"})

    connects(settings(listener.address, **by_token(mechanism)))
    by_tokens = set(listener.by_token)
    listener.by_token.clear()
    connects(settings(listener.address, **login(mechanism=mechanism)))

    assert (by_tokens, set(listener.by_token)) == ({True}, {False})
    assert set(listener.named) == {"token-1", "alice"}


def test_a_refused_token_is_named_as_one_with_what_to_do(opened: Opened) -> None:
    listener = opened(mechanisms=MECHANISMS, users=TOKEN)

    error = refused(settings(listener.address, **by_token("SCRAM-SHA-512", hmac="b3RoZXI=")))

    assert type(error) is LoginRefused
    assert "refused the delegation token" in error.message and "kafka-delegation-tokens" in error.message
    assert "b3RoZXI=" not in str(error)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    ("iterations", "said"),
    [
        ("2147483648", "it asks for 2147483648 iterations"),
        ("100001", "it asks for 100001 iterations"),
        ("4095", "it asks for 4095 iterations"),
        ("1", "it asks for 1 iterations"),
        ("-1", "has no number of iterations"),
        ("9" * 5000, "has no number of iterations"),
        ("", "has no number of iterations"),
        ("4096,i=1", "has an attribute twice"),
        ("4096,i=1000000", "has an attribute twice"),
        ("4096,s=", "has an attribute twice"),
        ("4096,r=", "has an attribute twice"),
    ],
)
def test_a_broker_that_asks_for_too_much_work_or_too_little_is_refused_at_once(
    opened: Opened, mechanism: str, iterations: str, said: str
) -> None:
    listener = opened(mechanisms=MECHANISMS, users={"alice": "wonderland"}, iterations=iterations)

    began = time.process_time()
    error = refused(settings(listener.address, **login(mechanism=mechanism)))

    assert type(error) is ProtocolViolation
    assert said in error.message and "is not the broker" in error.message
    # 100,001 iterations alone take 0.1 s.
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_keys_are_derived_while_the_connections_go_on(
    opened: Opened, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, threads = hashlib.pbkdf2_hmac, []

    def derived(*given: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return real(*given)

    monkeypatch.setattr(scram.hashlib, "pbkdf2_hmac", derived)
    listener = opened(mechanisms=MECHANISMS, users={"alice": "wonderland"})
    connects(settings(listener.address, **login(mechanism=mechanism)))

    mine = [each for each in threads if each == "kafka-eos-beside"]
    assert mine, threads
    assert not any(each.endswith("-network") for each in threads)


@pytest.mark.parametrize("count", [LEAST_ITERATIONS, 16_384, MOST_ITERATIONS])
def test_what_kafka_lets_users_have_is_taken(count: int) -> None:
    assert server_first(f"r=abc,s=c2FsdA==,i={count}".encode()) == (b"abc", b"salt", count)
    assert server_first(f"r=abc,s=c2FsdA==,i={count},x=an extension".encode()) == (b"abc", b"salt", count)


@pytest.mark.parametrize(
    "message", [b"", b"r=a,s=b", b"\xff", b"s=b,r=a,i=4096", b"m=needed,r=a,s=b,i=4096", b"i=4096", b"r,s,i"]
)  # fmt: skip
def test_a_message_of_other_attributes_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match="SCRAM"):
        server_first(message)


@pytest.mark.parametrize("number", ["\xff", "\u0664\u0660\u0669\u0666", "+4096", "4096.0", " 4096"])
def test_a_message_without_a_number_is_refused(number: str) -> None:
    with pytest.raises(ValueError, match="no number of iterations"):
        server_first(f"r=a,s=c2FsdA==,i={number}".encode())
