"""How something right becomes something hostile: bytes, JSON values, texts.

Every change depends on its random numbers alone.
"""

from __future__ import annotations

import json
import random
from typing import Any

_TEXTS = (
    "", " ", "\0", "x" * 3_000, "é" * 100, "\u202e", "\ud800", "a\r\nb", "\x1b]0;x\x07", "../../etc", "-1", "1e999", "0x10", "٣", "true",
    "null", "{}", "[]", "a:b", "a/b", "a,b", "=", "${X}", "%s", "1_0", "9" * 30, "9" * 5_000, "*", "default", "127.0.0.1:1", "orders:0",
)  # fmt: skip
_NUMBERS = (
    0, 1, -1, -2, 2, 255, 2**15 - 1, 2**15, 2**31 - 1, 2**31, -(2**31), 2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e308,
)  # fmt: skip
_WORDS = ("NaN", "Infinity", "-Infinity", "1E400", "00", "tru", "'x'", "\\u0000", "9" * 5_000)


def changed_bytes(chance: random.Random, data: bytes) -> bytes:
    """One to four changes: bits, bytes, pieces cut out, put in, repeated, an end that is missing."""
    body = bytearray(data or b"\0")
    for _ in range(chance.randint(1, 4)):
        at, kind = chance.randrange(len(body)), chance.randrange(8)
        if kind <= 1:
            body[at] ^= 1 << chance.randrange(8)
        elif kind <= 3:
            body[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif kind == 4:
            del body[at : at + chance.choice((1, 2, 4, 30))]
        elif kind == 5:
            body[at:at] = chance.randbytes(chance.choice((1, 2, 4, 30)))
        elif kind == 6:
            body[at:at] = body[at : at + chance.choice((1, 8, 60))] * chance.choice((1, 2, 50))
        else:
            del body[at + 1 :]
        body = body or bytearray(1)
    return bytes(body)


def other_value(chance: random.Random, old: Any = None) -> Any:
    """A value of JSON: often of the old one's kind, always with something unusual in it."""
    kind = chance.randrange(9)
    if kind == 0 and isinstance(old, str):
        return old + chance.choice(_TEXTS)
    if kind == 0 and type(old) is int:
        return old + chance.choice((-1, 1, 2**31))
    if kind <= 2:
        return chance.choice(_NUMBERS)
    if kind <= 4:
        return chance.choice(_TEXTS)
    if kind == 5:
        return chance.choice((None, True, False))
    if kind == 6:
        return chance.choice(([], {}, [[]], [None], {"": None}))
    if kind == 7 and isinstance(old, list):
        return old * chance.choice((0, 2, 100)) if len(old) < 1_000 else []
    return [old] if chance.random() < 0.5 else {"a": old}


def changed_json(chance: random.Random, body: Any) -> Any:
    """A copy of the value with one to three of its parts, on any level, other ones, absent, or doubled."""
    copy = json.loads(json.dumps(body))
    for _ in range(chance.choice((1, 1, 2, 3))):
        places = list(_places(copy))
        if not places:
            return other_value(chance, copy)
        owner, key = chance.choice(places)
        kind = chance.randrange(6)
        if kind == 0 and isinstance(owner, dict):
            owner[chance.choice((str(key).upper(), f"{key} ", "x", ""))] = owner.pop(key)
        elif kind == 1:
            del owner[key]
        elif kind == 2 and isinstance(owner, list):
            owner.insert(key, owner[key])
        else:
            owner[key] = other_value(chance, owner[key])
    return copy


def _places(value: Any) -> Any:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(entries):
        yield value, key
        yield from _places(inner)


def changed_json_text(chance: random.Random, text: bytes) -> bytes:
    """A JSON text that was changed as a value, as bytes, or in what only a text has: depth, constants, cut words."""
    kind = chance.randrange(10)
    if kind <= 5 and text[:1] in (b"{", b"["):
        return json.dumps(changed_json(chance, json.loads(text)), separators=(",", ":")).encode()
    if kind <= 7:
        return changed_bytes(chance, text)
    if kind == 8:
        at = chance.randrange(len(text) + 1)
        deep = chance.choice((b"[", b'{"a":', b"[[{")) * chance.choice((1, 50, 2_000, 30_000))
        return text[:at] + deep + text[at:]
    at = text.find(b":", chance.randrange(len(text))) + 1
    return text[:at] + chance.choice(_WORDS).encode() + text[at + chance.choice((0, 1, 3)) :]


def other_text(chance: random.Random, old: str = "") -> str:
    """A text in place of the old one, without halves of surrogate pairs, which no option and no file can have."""
    found = chance.choice((*_TEXTS, *map(str, _NUMBERS), old + chance.choice(_TEXTS), old[: len(old) // 2], old * 3))
    return found.encode("utf-8", "ignore").decode()
