"""SaslHandshake: the client names a mechanism; the answer lists those of the listener.

Version 0, after which the mechanism's messages come without Kafka's header, is not offered: clients since Kafka
1.0 use version 1 (KIP-152). A listener without SASL answers ILLEGAL_SASL_STATE, as Kafka does.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.wire.server import Message, SaslHandshakeRequest, SaslHandshakeResponse
from kafka_core.protocol.error_codes import Code

API_KEY: int = SaslHandshakeRequest.API_KEY
VERSIONS = (1, 1)


async def handle(parts: Parts, request: Message, context: Context) -> Message:
    """Begin the mechanism, or refuse it."""
    session = context.session
    code = Code.ILLEGAL_SASL_STATE if session is None else session.handshake(request.mechanism)
    return SaslHandshakeResponse(
        version=request.API_VERSION, error_code=int(code), mechanisms=list(parts.listener_security.mechanisms)
    )
