"""SaslHandshake: the client names a mechanism; the answer lists those of the listener.

Version 0, after which the mechanism's messages come without Kafka's header, is not offered: clients since Kafka
1.0 use version 1 (KIP-152). A listener without SASL answers ILLEGAL_SASL_STATE, as Kafka does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embedded_kafka.wire.server import Message, SaslHandshakeRequest, SaslHandshakeResponse
from kafka_core.protocol.error_codes import Code

if TYPE_CHECKING:
    from embedded_kafka.context import Context
    from embedded_kafka.node import Node

API_KEY: int = SaslHandshakeRequest.API_KEY
VERSIONS = (1, 1)


async def handle(node: Node, request: Message, context: Context) -> Message:
    """Begin the mechanism, or refuse it."""
    session = context.session
    code = Code.ILLEGAL_SASL_STATE if session is None else session.handshake(request.mechanism)
    return SaslHandshakeResponse(
        version=request.API_VERSION, error_code=int(code), mechanisms=list(node.door.mechanisms)
    )
