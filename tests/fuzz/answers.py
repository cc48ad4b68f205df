"""Answers of brokers, read by the client as they arrive."""

from __future__ import annotations

import random
from functools import cached_property
from typing import Any

from kafka_core.errors import ExactlyOnceError
from pyspark_kafka_eos.client.wire.answer_frames import BadAnswer
from pyspark_kafka_eos.records.warm import warm
from tests.fuzz.target import Stateless
from tests.pyspark_kafka_eos.client.hostile import mutations
from tests.pyspark_kafka_eos.client.hostile.reading import framed, read_answer
from tests.pyspark_kafka_eos.client.hostile.recording import Conversation

_MOST_BYTES = 16 << 20
"""Unpacked. With the 128 MiB that are the default, a case that unpacks to them takes half a second, as it has to."""


class Answers(Stateless):
    """Every answer of the recorded conversation, in the forms of `mutations`."""

    name = "answers"
    reads = "the client, answers of a broker"
    most_mb = 160
    """A batch takes three times what it unpacks to, while it is read; and a bomb is made in memory, too."""

    @cached_property
    def _said(self) -> list[Any]:
        # Compiling takes seconds where nobody has before, and is no case's.
        warm()
        mutations.prepare()
        return sorted({each for all_of_it in Conversation.load().said.values() for each in all_of_it})

    def made(self, chance: random.Random) -> Any:
        """An answer, changed: API, version, the pieces in which it arrives."""
        api, version, body = chance.choice(self._said)
        sent = mutations.drawn(chance, api)(chance, framed(body), api, version)
        return api, version, list(sent.pieces)

    def played(self, case: Any) -> str:
        """Read as it arrives; what was fetched is decoded."""
        try:
            return read_answer(*case, _MOST_BYTES)
        except BadAnswer:
            return "refused"
        except ExactlyOnceError as error:
            return type(error).__name__
