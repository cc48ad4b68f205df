"""The security settings of one cluster, as the network library and the messages need them.

Owns: what of the pairs in `ClientSettings.security` goes to the library, and what can be checked before a socket is opened.
Does not know: sockets, the reading of options.
Invariants: a secret is revealed for the library alone.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any

from connector.client.refusals import Asked
from connector.client.tls import Tls, open_context
from connector.errors import OptionsError
from connector.model import Secret

_SCRAM = "SCRAM-"


def library_settings(security: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The settings that the network library reads. TLS is not among them: its connections get a context of our own."""
    found = {
        name: value.reveal() if isinstance(value, Secret) else value
        for name, value in security
        if not name.startswith("ssl_")
    }
    name = found.get("sasl_plain_username")
    if name is not None and str(found.get("sasl_mechanism")).startswith(_SCRAM):
        # RFC 5802, 5.1: these two separate the fields of a message. The library writes the name as it is.
        found["sasl_plain_username"] = name.replace("=", "=3D").replace(",", "=2C")
    return found


def asked(security: Iterable[tuple[str, Any]]) -> Asked:
    """What the settings ask of a listener."""
    found = dict(security)
    return Asked(found.get("security_protocol", "PLAINTEXT"), found.get("sasl_mechanism"), Tls.of(found))


def check(wanted: Asked) -> None:
    """OptionsError where this machine lacks what the settings need: a readable file, a package."""
    if wanted.tls is not None:
        open_context(wanted.tls)
    if wanted.mechanism == "GSSAPI" and importlib.util.find_spec("gssapi") is None:
        raise OptionsError(
            "kafka.sasl.mechanism=GSSAPI needs the Python package gssapi on the driver and on every executor: "
            "pip install gssapi; nothing was opened",
            {"mechanism": "GSSAPI"},
        )
