"""Everything of the product that reads what somebody else has written."""

from __future__ import annotations

from tests.fuzz.answers import Answers
from tests.fuzz.frames import Connections, Frames, StrangersFrames
from tests.fuzz.logins import MessagesOfAClient, ScramOfAServer, TokenAnswers
from tests.fuzz.records import Records
from tests.fuzz.settings import Options, Patterns, YamlFiles
from tests.fuzz.target import Target
from tests.fuzz.texts import Decisions, GroupOffsets, Notes, OffsetLog, Turns

TARGETS: dict[str, type[Target]] = {
    made.name: made
    for made in (
        Frames, StrangersFrames, Connections, MessagesOfAClient, Answers, Records, Decisions, Notes, Turns, OffsetLog, GroupOffsets, Options,
        Patterns, YamlFiles, ScramOfAServer, TokenAnswers,
    )
}  # fmt: skip
"""By name."""
