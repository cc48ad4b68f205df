"""ApiVersions: the APIs and versions of this broker, and its finalised features.

Version 3 adds features (KIP-584), version 4 corrects features that begin at 0. From version 5 on a client may name
the cluster and the broker that it means to reach, both or neither; another broker answers REBOOTSTRAP_REQUIRED
(KIP-1242). Before a login nothing is compared, as in Kafka. A client whose request version is too new receives
version 0 with UNSUPPORTED_VERSION and the versions of this API (KIP-511), and sends a new request.
"""

from __future__ import annotations

import re

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.wire.server import ApiVersionsRequest, ApiVersionsResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = ApiVersionsRequest.API_KEY
VERSIONS = (0, 5)
_UNNAMED = -1
"""The node id of a client that names no broker."""

_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Valid client software names and versions (KIP-511)."""
_FEATURES = {"group.version": 1, "transaction.version": 2}
"""Name -> the highest level that this broker supports; the lowest is 0 of each."""


async def handle(parts: Parts, request: Message, context: Context) -> Message:
    """List every API of the table."""
    refused = _refused(parts, request, context)
    if refused is not Code.NONE:
        return ApiVersionsResponse(version=request.API_VERSION, error_code=int(refused), api_keys=[])
    return ApiVersionsResponse(
        version=request.API_VERSION,
        error_code=int(Code.NONE),
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=api_key, min_version=lowest, max_version=highest)
            for api_key, (lowest, highest) in sorted(parts.offered.items())
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(
                name=name,
                # Before version 4 no feature may be listed with a minimum of 0 (KAFKA-17011).
                min_version=0 if request.API_VERSION >= 4 else 1,
                max_version=highest,
            )
            for name, highest in _FEATURES.items()
        ],
        finalized_features_epoch=0,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in _finalized(parts).items()
            if level > 0
        ],
    )


def _finalized(parts: Parts) -> dict[str, int]:
    return {
        "group.version": int(parts.config.consumer_protocol),
        "transaction.version": parts.config.transaction_version,
    }


def _refused(parts: Parts, request: Message, context: Context) -> Code:
    """What is wrong with the request; NONE where nothing is."""
    if request.API_VERSION >= 3 and not (
        _NAME.fullmatch(request.client_software_name) and _NAME.fullmatch(request.client_software_version)
    ):
        return Code.INVALID_REQUEST
    if request.API_VERSION >= 5:
        if (request.cluster_id is None) is not (request.node_id == _UNNAMED):
            return Code.INVALID_REQUEST
        # Until a client has logged in, its login answers it and not the broker.
        knows = context.session is None or not context.session.unknown
        meant = (request.cluster_id, request.node_id)
        if knows and request.cluster_id is not None and meant != (parts.cluster_id, parts.node_id):
            return Code.REBOOTSTRAP_REQUIRED
    return Code.NONE


def unsupported(parts: Parts) -> Message:
    """The answer to a request version that this broker does not support. A client sends the highest one next, so it is
    this broker's own, also where it is of an older release.
    """
    lowest, highest = parts.offered[API_KEY]
    own = ApiVersionsResponse.ApiVersion(api_key=API_KEY, min_version=lowest, max_version=highest)
    return ApiVersionsResponse(version=0, error_code=int(Code.UNSUPPORTED_VERSION), api_keys=[own])
