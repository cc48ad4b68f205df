"""The users of PLAIN and SCRAM, from a JSON file `{"name": "password", ...}`.

Owns: the file's form; each user's SCRAM keys, which are derived once.
Does not know: the mechanisms' messages.
Invariants:
- Passwords are compared in constant time.
- No message and no repr contains a password.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_core import runtime
from kafka_core.errors import OptionsError

SETTING = "sasl.users.file"
ITERATIONS = 4_096
"""Kafka's least for SCRAM. More makes each user's first login slower; the passwords of tests need no more."""
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


@dataclass(frozen=True)
class ScramKeys:
    """What a broker keeps of a password (RFC 5802, section 3)."""

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


class Users:
    """The users by name."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = dict(passwords)
        self._keys: dict[tuple[str, str], ScramKeys] = {}

    @classmethod
    def read(cls, path: Path) -> Users:
        """The users of the file. OptionsError names the file where it is not an object of names and passwords."""
        try:
            found = json.loads(path.read_bytes())
        except OSError as error:
            raise _refused(path, f"cannot be read: {error.strerror}") from None
        except ValueError:
            raise _refused(path, "is not JSON") from None
        if not isinstance(found, dict) or not all(
            name and isinstance(password, str) and password for name, password in found.items()
        ):
            raise _refused(path, 'must be an object {"name": "password", ...}')
        return cls(found)

    def knows(self, name: str, password: str) -> bool:
        """Whether this is the user's password."""
        expected = self._passwords.get(name)
        # An unknown user costs the same comparison as a known one.
        same = hmac.compare_digest((expected or "").encode(), password.encode())
        return same and expected is not None

    def scram(self, mechanism: str, name: str) -> ScramKeys | None:
        """The user's keys for the mechanism; None for an unknown user."""
        password = self._passwords.get(name)
        if password is None:
            return None
        keys = self._keys.get((mechanism, name))
        if keys is None:
            keys = self._keys[mechanism, name] = derived(mechanism, password, runtime.uuid4().bytes)
        return keys


def derived(mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS) -> ScramKeys:
    """The keys of a password. As in Kafka the password's UTF-8 is used as it is, without SASLprep."""
    hash_name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    return ScramKeys(
        salt=salt,
        iterations=iterations,
        stored_key=hashlib.new(hash_name, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", hash_name),
    )


def _refused(path: Path, what: str) -> OptionsError:
    return OptionsError(f"{SETTING}: {path} {what}; nothing was started", {"file": str(path)})
