"""How a true answer becomes a hostile one. Every change depends on its random numbers alone."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import crc32c
import pyarrow as pa

from tests.pyspark_kafka_eos.client.hostile.peer import Sent
from tests.pyspark_kafka_eos.client.hostile.recording import SASL_AUTHENTICATE, decoded, encoded

FETCH = 1
_EXTREMES = (-1, -2, 0, 1, 2**31 - 1, -(2**31), 1 << 24, 0x7FFFFFFE, 65536, 255)
_BOMB_BYTES = 136 << 20
_HEAD = 8
"""Length and correlation id."""


def _sized(frame: bytes, body: bytes) -> bytes:
    return struct.pack(">i", 4 + len(body)) + frame[4:_HEAD] + body


def _place(chance: random.Random, body: bytes, width: int = 1) -> int:
    return chance.randrange(max(1, len(body) - width + 1))


def flip(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """A few bits."""
    data = bytearray(frame)
    for _ in range(chance.choice((1, 1, 2, 8))):
        data[chance.randrange(_HEAD, len(data)) if len(data) > _HEAD else 7] ^= 1 << chance.randrange(8)
    return Sent(bytes(data))


def cut_with_end(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """The stream ends at some byte."""
    return Sent(frame[: chance.randrange(len(frame))], ends=True)


def cut_and_silent(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """The peer stops at some byte and stays connected."""
    return Sent(frame[: chance.randrange(len(frame))], stalls=True)


def short(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """A whole frame with less in it."""
    body = frame[_HEAD:]
    return Sent(_sized(frame, body[: chance.randrange(len(body) + 1)]))


def wrong_size(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """Another length before the frame."""
    own = len(frame) - 4
    size = chance.choice(
        (
            -1,
            -(2**31),
            2**31 - 1,
            0,
            1,
            3,
            own - 1,
            own + 1,
            200 << 20,
            100 << 20,
            1 << 20,
            0x15030300,
            0x48545450,
        )
    )
    return Sent(struct.pack(">i", size) + frame[4:], ends=chance.random() < 0.95, stalls=chance.random() < 0.05)


def wrong_id(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """Another correlation id."""
    return Sent(frame[:4] + struct.pack(">I", chance.choice((0, 1, 2**32 - 1, chance.getrandbits(32)))) + frame[8:])


def glued(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """Two answers, or an answer to nothing behind the true one."""
    other = frame if chance.random() < 0.5 else struct.pack(">ii", 10, chance.getrandbits(30)) + bytes(6)
    if chance.random() < 0.3:
        return Sent(struct.pack(">i", 2 * len(frame) - 8) + frame[4:] + frame[8:])
    return Sent(frame + other)


def before(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """An answer to nothing before the true one."""
    return Sent(struct.pack(">ii", 10, chance.getrandbits(31)) + bytes(6) + frame)


def number(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """An extreme number somewhere: a count, a length, an offset, a code."""
    width, letter = chance.choice(((4, ">i"), (2, ">h"), (8, ">q"), (1, ">b")))
    body = bytearray(frame[_HEAD:])
    at = _place(chance, body, width)
    limit = 1 << (8 * width - 1)
    value = (chance.choice(_EXTREMES) + limit) % (2 * limit) - limit
    body[at : at + width] = struct.pack(letter, value)
    return Sent(_sized(frame, bytes(body)))


def varint(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """A varint that is huge, or that does not end."""
    body = bytearray(frame[_HEAD:])
    at = _place(chance, body)
    many = chance.choice(
        (
            b"\xff\xff\xff\xff\x07",
            b"\xff\xff\xff\xff\x0f",
            b"\x80" * 5 + b"\x01",
            b"\xff" * 11,
            b"\xff" * 300_000,
        )
    )
    body[at : at + chance.choice((0, 1))] = many
    return Sent(_sized(frame, bytes(body)))


def not_utf8(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """Bytes that are no UTF-8 where a text may be."""
    body = bytearray(frame[_HEAD:])
    letters = [at for at, byte in enumerate(body) if 97 <= byte <= 122] or [0]
    at = chance.choice(letters)
    body[at : at + 2] = chance.choice((b"\xff\xfe", b"\xc0\x80", b"\xed\xa0", b"\xf5\x80", b"\x80\x80"))
    return Sent(_sized(frame, bytes(body)))


def spliced(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """Bytes put in, taken out or repeated."""
    body = bytearray(frame[_HEAD:])
    at, length = _place(chance, body), chance.choice((1, 2, 4, 16, 100))
    piece = (chance.randbytes(length), b"", bytes(body[at : at + length]) * chance.choice((2, 3, 1000)))[
        chance.randrange(3)
    ]
    body[at : at + chance.choice((0, length))] = piece
    return Sent(_sized(frame, bytes(body)))


def noise(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """No answer at all."""
    length = chance.choice((0, 1, 8, 100, 5000))
    kind = chance.randrange(4)
    if kind == 0:
        return Sent(b"HTTP/1.1 400 Bad Request\r\n\r\n", ends=True)
    if kind == 1:
        return Sent(b"\x15\x03\x03\x00\x02\x02\x28", ends=True)
    if kind == 2:
        return Sent(chance.randbytes(length), ends=True)
    return Sent(_sized(frame, chance.choice((chance.randbytes(length), bytes(length), b"\xff" * length))))


def dribbled(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """The true answer, byte by byte: no change of its meaning."""
    if len(frame) > 600:
        at = chance.randrange(1, len(frame))
        return Sent(frame[:at], frame[at:])
    return Sent(*(frame[at : at + 1] for at in range(len(frame))))


# ---- changes that know the answer's form


def leaves(value: Any, described: Any, version: int, found: list[tuple[Any, str, Any]]) -> None:
    """Every field of a message, also of its parts: who has it, its name, its description."""
    for name, each in described.fields.items():
        if not each.for_version_q(version):
            continue
        inner = getattr(value, name)
        found.append((value, name, each))
        if each.is_struct_array():
            for item in inner or ():
                leaves(item, each.array_of, version, found)
        elif each.is_struct() and inner is not None:
            leaves(inner, each, version, found)


def other_field(chance: random.Random, old: Any, described: Any) -> Any:
    """Another value for a field."""
    if described.is_array():
        choices: list[Any] = [
            None,
            [],
            list(old or ()) * 2,
            list(old or ()) * 300,
            list(reversed(old or ())),
            list(old or ())[:1],
        ]
        return chance.choice(choices)
    kind = described.type_str
    if kind == "string":
        return chance.choice(
            (
                None,
                "",
                "x" * 30_000,
                "\0",
                "é" * 100,
                "a b\r\n",
                "../../etc",
                "127.0.0.1.",
                "no-such-host",
                (old or "") + "x",
            )
        )
    if kind in ("bytes", "records"):
        old = bytes(old or b"")
        return chance.choice((None, b"", b"\xff" * 40, old * 3, old[: len(old) // 2], chance.randbytes(200)))
    if kind == "bool":
        return not old
    bits = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16}.get(kind)
    if bits is None:
        return old
    if described.name.endswith("error_code"):
        return chance.randrange(-1, 135)
    limit = 1 << (bits - 1)
    return chance.choice(
        (0, -1, -2, 1, limit - 1, -limit, (old or 0) + 1, (old or 0) - 1, chance.randrange(-limit, limit))
    )


def field(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """One or two fields of the answer, everything else as it was."""
    if api in (17, SASL_AUTHENTICATE):
        return sasl(chance, frame, api, version)
    try:
        answer = decoded(api, version, frame[_HEAD:])
        for _ in range(chance.choice((1, 1, 2))):
            found: list[tuple[Any, str, Any]] = []
            leaves(answer, type(answer)._struct, version, found)
            owner, name, described = chance.choice(found)
            setattr(owner, name, other_field(chance, getattr(owner, name), described))
        return Sent(_sized(frame, encoded(answer, api, version)))
    except (struct.error, ValueError, TypeError, AttributeError, IndexError, OverflowError):
        return flip(chance, frame, api, version)


def sasl(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """Another token or refusal in a login."""
    if api != SASL_AUTHENTICATE:
        return number(chance, frame, api, version)
    texts = (
        b"r=x,s=AAAA,i=4096", b"r=,s=,i=", b"", b"=", b",,,", b"r", b"i=-1,r=x,s=", b"v=", b"v=AAAA", b"e=other-error",
        b"r=\xff\xfe,s=AAAA,i=1", b"\0" * 50_000, b"r=" + b"a" * 100_000, chance.randbytes(60), b"{\"status\":\"invalid\"}",
    )  # fmt: skip
    token = chance.choice(texts)
    # The true challenge with other numbers.
    (length,) = struct.unpack_from(">i", frame, _HEAD + 4)
    true = frame[_HEAD + 8 : _HEAD + 8 + max(0, length)]
    if true and chance.random() < 0.5:
        token = chance.choice((
            true.replace(b"i=4096", b"i=999999999"), true.replace(b"i=4096", b"i=0"), true.replace(b"i=4096", b"i=-5"),
            true.replace(b"i=4096", b"i=" + b"9" * 5000), true.replace(b",s=", b",t="), true.replace(b"r=", b"r=x"),
            true[:-3], true + b",", true.replace(b"s=", b"s=!!!"),
        ))  # fmt: skip
    code = chance.choice((0, 0, 0, 0, 58, 33, 34, -1, 999))
    message = chance.choice((b"", b"denied", b"\xff\xff", b"x" * 20_000))
    said = struct.pack(">h", -1) if code == 0 else struct.pack(">h", len(message)) + message
    lifetime = struct.pack(">q", chance.choice((0, -1, 1, 2**63 - 1))) if version >= 1 else b""
    return Sent(_sized(frame, struct.pack(">h", code) + said + struct.pack(">i", len(token)) + token + lifetime))


# ---- record batches


def _snappy_bomb() -> bytes:
    return b"\xff\xff\xff\xff\x07" + b"\xfe\xff\xff" * 1000


_CODES: dict[str, int] = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_bombs: dict[str, bytes] = {}


def _bomb(name: str) -> bytes:
    if name not in _bombs:
        if name == "snappy":
            _bombs[name] = _snappy_bomb()
        elif name == "gzip":
            _bombs[name] = gzip.compress(bytes(_BOMB_BYTES), 9)
        else:
            _bombs[name] = pa.Codec(name).compress(bytes(_BOMB_BYTES), asbytes=True)
    return _bombs[name]


def prepare() -> None:
    """Make the bombs now, not within a case."""
    for name in _CODES:
        _bomb(name)


def _batch(base: int, count: int, attributes: int, payload: bytes, delta: int | None = None) -> bytes:
    head = struct.pack(">hiqqqhii", attributes, count - 1 if delta is None else delta, 0, 0, -1, -1, -1, count)
    checked = head + payload
    return struct.pack(">qiibI", base, 9 + len(checked), 0, 2, crc32c.crc32c(checked)) + checked


def _record(chance: random.Random) -> bytes:
    """The content of one record, with something wrong in it."""
    wrong = chance.choice((
        b"\xff" * 10, b"\x0e\0\0\0\x01\x01\0", b"\x10\0\0\0\x01\x01\xfe\xff\xff\xff\x0f", b"\x7e\0\0\0\x01\x01\0",
        b"\x0e\0\0\0\x01\x01\x01", b"\0" * 7, b"\x0e\0\xff\xff\xff\xff\xff\xff", b"\x10\0\0\0\x7e\x01\0\0", b"",
    ))  # fmt: skip
    return wrong * chance.choice((1, 1, 100))


def _deep(depth: int) -> bytes:
    data = _batch(0, 1, 1, zlib.compress(b""))
    for _ in range(depth):
        data = _batch(0, 1, 1, gzip.compress(data, 1))
    return data


def records(chance: random.Random, frame: bytes, api: int, version: int) -> Sent:
    """Fetch: other record batches, with a right CRC."""
    answer = decoded(FETCH, version, frame[_HEAD:])
    part = answer.responses[0].partitions[0]
    name = chance.choice(tuple(_CODES))
    kind = chance.randrange(10)
    if kind == 0 and chance.random() < 0.15:
        made = _batch(0, chance.choice((1, 1000)), _CODES[name], _bomb(name))
    elif kind in (0, 1):
        made = _batch(0, chance.choice((1, 2**31 - 1)), _CODES[name], chance.randbytes(chance.choice((0, 5, 500))))
    elif kind == 2:
        made = _batch(0, chance.choice((-1, 2**31 - 1, 1_000_000)), 0, b"\x0e\0\0\0\x01\x01\0", delta=2**31 - 1)
    elif kind == 3:
        made = _deep(chance.choice((1, 5, 50)))
    elif kind == 4:
        made = _batch(
            chance.choice((0, -1, 2**63 - 1, 2**62)),
            1,
            chance.choice((0x20, 0x30, 0x10, 0x27)),
            chance.randbytes(20),
        )
    elif kind == 5:
        data = bytearray(part.records or b"x")
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        made = bytes(data)
    elif kind == 6:
        data = bytearray(part.records or b"x")
        struct.pack_into(">i", data, 8, chance.choice((-1, 0, 2**31 - 1, 48, 49))) if len(data) > 12 else None
        made = bytes(data)
    elif kind == 7:
        made = bytes(part.records or b"") * 200
    elif kind == 8:
        made = bytes(chance.choice((1, 17, 61, 100_000)))
    else:
        made = _batch(0, chance.choice((1, 1, 3)), 0, _record(chance))
    part.records = made
    return Sent(_sized(frame, encoded(answer, FETCH, version)))


Mutation = Callable[[random.Random, bytes, int, int], Sent]

MUTATIONS: tuple[tuple[Mutation, int], ...] = (
    (flip, 12), (cut_with_end, 8), (cut_and_silent, 1), (short, 8), (wrong_size, 6), (wrong_id, 3), (glued, 4), (before, 2),
    (number, 12), (varint, 6), (not_utf8, 4), (spliced, 8), (noise, 4), (dribbled, 2), (field, 24),
)  # fmt: skip
"""With weights."""


def drawn(chance: random.Random, api: int) -> Mutation:
    """One of them. Half of those of a Fetch are of its records."""
    if api == FETCH and chance.random() < 0.5:
        return records
    mutations, weights = zip(*MUTATIONS, strict=True)
    chosen: Mutation = chance.choices(mutations, weights)[0]
    return chosen


def torn_tls(chance: random.Random, data: bytes) -> bytes:
    """TLS records with something wrong in them."""
    kind = chance.randrange(4)
    if kind == 0 or len(data) < 2:
        return chance.randbytes(50)
    if kind == 1:
        return data[: chance.randrange(1, len(data))]
    changed = bytearray(data)
    for _ in range(chance.choice((1, 4))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed) + (chance.randbytes(30) if kind == 3 else b"")
