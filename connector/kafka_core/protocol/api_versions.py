"""ApiVersions 5 (KIP-1242), which kafka-python does not have yet: the request may name the broker that is meant.

Owns: the two fields that version 5 adds to the request, and the version of the answer, to which it adds none.
Does not know: which cluster and broker they are compared with.
Invariants: versions 0 to 4 are the library's. A library that has version 5 itself is left as it is.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol import metadata
from kafka.protocol.api_message import ApiMessage

_ADDED: tuple[dict[str, Any], ...] = (
    {"name": "ClusterId", "type": "string", "versions": "5+", "nullableVersions": "5+", "default": "null"},
    {"name": "NodeId", "type": "int32", "versions": "5+", "default": -1},
)


def _newest(schema: dict[str, Any], *fields: dict[str, Any]) -> dict[str, Any]:
    """The library's schema, with version 5 where it ends before."""
    if schema["validVersions"] == "0-4":
        schema["validVersions"] = "0-5"
        schema["fields"] += fields
    return schema


# The library reads the schema by the name of a class, and calls `json_patch` while it makes the class.
class ApiVersionsRequest(ApiMessage):  # type: ignore[misc]
    """The request; `cluster_id` and `node_id` from version 5 on."""

    @classmethod
    def json_patch(cls, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema with the fields of version 5."""
        return _newest(schema, *_ADDED)


class ApiVersionsResponse(metadata.ApiVersionsResponse):  # type: ignore[misc]
    """The answer. Where this module is imported the library's client reads its answers with it too, in versions 0 to
    4.
    """

    @classmethod
    def json_patch(cls, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema with version 5."""
        return _newest(schema)
