"""SaslAuthenticate: one message of the mechanism (KIP-152).

Version 1 tells the length of the session, before whose end the client has to log in again (KIP-368). A listener
without SASL answers ILLEGAL_SASL_STATE, as Kafka does.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.wire.server import Message, SaslAuthenticateRequest, SaslAuthenticateResponse
from kafka_core.protocol.error_codes import Code

API_KEY: int = SaslAuthenticateRequest.API_KEY
VERSIONS = (0, 2)


async def handle(_parts: Parts, request: Message, context: Context) -> Message:
    """Hand the message to the mechanism."""
    if context.session is None:
        return SaslAuthenticateResponse(
            version=request.API_VERSION,
            error_code=int(Code.ILLEGAL_SASL_STATE),
            error_message="SaslAuthenticate request received after successful authentication",
            auth_bytes=b"",
        )
    code, reason, answer, lifetime_ms = await context.session.authenticate(bytes(request.auth_bytes))
    return SaslAuthenticateResponse(
        version=request.API_VERSION,
        error_code=int(code),
        error_message=reason,
        auth_bytes=answer,
        session_lifetime_ms=lifetime_ms,
    )
