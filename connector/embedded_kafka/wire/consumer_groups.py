"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848), which kafka-python does not have.

Owns: their four messages, made by the library's own machinery from the schemas in `schemas/`.
Does not know: what they mean.
Source: KIP-848 (version 0), KIP-1082 (version 1 of the heartbeat: the member makes its own id, and a subscription may
be a regular expression), KIP-1099 (version 1 of the description: the kind of a member).
"""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

_SCHEMAS = f"{__package__}.schemas"


# The library reads the schema by the name of a class.
class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc]
    """A member joins, goes on, or leaves."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc]
    """The member's epoch, and its partitions where they changed."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc]
    """Names groups."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc]
    """The groups' epochs and members."""
