"""Consumer groups of the classic protocol and their committed offsets.

Owns: the group coordinator and its records of `__consumer_offsets`.
Does not know: requests and answers (`apis`), how a log keeps records (`log`).
"""

from __future__ import annotations

from embedded_kafka.groups.coordinator import GroupCoordinator
from embedded_kafka.groups.offsets import CommittedOffset, FetchedOffset, NewOffset

__all__ = ["CommittedOffset", "FetchedOffset", "GroupCoordinator", "NewOffset"]
