"""The one result in the answer to a request about one topic, partition, group or transactional id.

Owns: the check that there is exactly that part.
Does not know: what the part means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_core.errors import ProtocolViolation
from kafka_core.protocol import messages as m


def only(parts: Sequence[Any], request_class: type[Any], about: str) -> m.Message:
    """The one part of an answer about `about`. ProtocolViolation where the broker answered with none, or with
    several.
    """
    if len(parts) != 1:
        api = m.api_name(request_class.API_KEY)
        raise ProtocolViolation(
            f"{api} for {about} got an answer with {len(parts)} results instead of one; nothing is concluded from it",
            {"api": api, "about": about, "results": len(parts)},
        )
    return parts[0]
