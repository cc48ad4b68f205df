"""Logins by Kerberos: GSSAPI as the client has it (RFC 4752).

Owns: which tickets are used, the messages of the exchange. The only module that imports gssapi.
Does not know: requests, threads. A KDC is asked while a `Gssapi` is made, which may take seconds.
Invariants:
- No password is asked for: a ticket comes from a keytab or from a ticket cache.
- Tickets of a keytab stay in the memory of the process, one cache for each principal and keytab; krb5 renews them
  there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.client.net.credentials import files

EXTRA = "pip install 'pyspark-kafka-eos[kerberos]'"
KEYTAB = "kafka.sasl.kerberos.keytab"

_NO_LAYER = 1
"""The only security layer that Kafka has: none, after the login."""

_NO_KDC = 0x96C73A9C
"""KRB5_KDC_UNREACH, as an unsigned number: no KDC of the realm answers, which may pass."""

_KEYTAB_BEGINS = (b"\x05\x01", b"\x05\x02")


@dataclass(frozen=True)
class Kerberos:
    """`service`: the first part of the brokers' principals. `principal`: whose tickets, None for those of the cache.
    `keytab`:
    the file of its keys. `cache`: a ticket cache, None for the machine's own.
    """

    service: str = "kafka"
    principal: str | None = None
    keytab: str | None = None
    cache: str | None = None

    @staticmethod
    def from_settings(security: Mapping[str, Any]) -> Kerberos | None:
        """From the pairs of the settings; None where the login is another one."""
        if security.get("sasl_mechanism") != "GSSAPI":
            return None
        found = {name: security.get(f"sasl_kerberos_{name}") for name in ("principal", "keytab", "cache")}
        return Kerberos(str(security.get("sasl_kerberos_service_name", "kafka")), **found)

    @property
    def remedy(self) -> str:
        """What a person can do about a ticket that is not to be had."""
        if self.keytab is None:
            return "run kinit on this machine, or set kafka.sasl.kerberos.keytab and kafka.sasl.kerberos.principal"
        return f"see whether {self.keytab} ({KEYTAB}) has the keys of {self.principal} (klist -k)"


def check(kerberos: Kerberos) -> None:
    """OptionsError where this machine lacks the package, or has no readable keytab."""
    _library()
    if kerberos.keytab is not None:
        given = files.read(KEYTAB, kerberos.keytab)
        if not given.text.startswith(_KEYTAB_BEGINS):
            raise given.refused("is not a keytab: make one with ktutil or kadmin")


class Gssapi:
    """One exchange with the broker `host`. Making one asks the KDC for a ticket; gssapi's GSSError where there is
    none.
    """

    def __init__(self, kerberos: Kerberos, host: str) -> None:
        library = _library()
        broker = library.Name(f"{kerberos.service}@{host}", library.NameType.hostbased_service)
        self._context = library.SecurityContext(
            name=broker,
            creds=_credentials(library, kerberos),
            usage="initiate",
            mech=library.MechType.kerberos,
        )
        self._next: bytes = self._context.step() or b""
        self._chosen = self._done = False

    def auth_bytes(self) -> bytes:
        """The next message."""
        return self._next

    def receive(self, data: bytes) -> None:
        """The broker's answer to it; ValueError where it is none."""
        if not self._context.complete:
            self._next = self._context.step(data) or b""
        elif not self._chosen:
            offered = self._context.unwrap(data).message
            if len(offered) != 4 or not offered[0] & _NO_LAYER:
                raise ValueError("it offers no connection without a security layer of GSSAPI")
            # Without a layer the largest message is 0, and no other identity is asked for.
            self._next = self._context.wrap(bytes((_NO_LAYER, 0, 0, 0)), False).message
            self._chosen = True
        elif data:
            raise ValueError("it goes on after the end of the exchange")
        else:
            self._done = True

    def is_done(self) -> bool:
        """Whether the broker has answered the last message."""
        return self._done

    def is_authenticated(self) -> bool:
        """The same."""
        return self._done


def kdc_is_away(error: BaseException) -> bool:
    """Whether gssapi's error says that no KDC has answered."""
    return int(getattr(error, "min_code", 0)) % 2**32 == _NO_KDC


def of_gssapi(error: BaseException) -> bool:
    """Whether it is an error of gssapi."""
    return type(error).__module__.split(".")[0] == "gssapi"


def _credentials(library: Any, kerberos: Kerberos) -> Any:
    name = None
    if kerberos.principal is not None:
        name = library.Name(kerberos.principal, library.NameType.kerberos_principal)
    if kerberos.keytab is not None:
        path = files.find(kerberos.keytab)
        own = hashlib.sha256(f"{kerberos.principal}\0{path}".encode()).hexdigest()[:16]
        store = {"client_keytab": f"FILE:{path}", "ccache": f"MEMORY:kafka-eos-{own}"}
    elif kerberos.cache is not None:
        store = {"ccache": kerberos.cache}
    elif name is None:
        return None
    else:
        return library.Credentials(name=name, usage="initiate")
    return library.Credentials(name=name, usage="initiate", store=store)


def _library() -> Any:
    try:
        import gssapi
    except (ImportError, OSError) as error:
        # OSError: the package is there, and krb5's library is not.
        raise OptionsError(
            f"kafka.sasl.mechanism=GSSAPI needs the Python package gssapi on the driver and on every executor ({error}): "
            f"{EXTRA}; nothing was opened",
            {"mechanism": "GSSAPI"},
        ) from None
    return gssapi
