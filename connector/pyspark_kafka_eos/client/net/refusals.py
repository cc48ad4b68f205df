"""Why a connection cannot be made: which failures waiting cannot mend, whose they are, what to do about them.

Owns: the translation of one failed connection into an error with its cause, its server or file, and its remedy.
Does not know: sockets, retries.
Invariants:
- None is returned for a failure that may end by itself: the caller tries again.
- No message contains a password.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass

from kafka_core.errors import (
    BrokerNotTrusted,
    ExactlyOnceError,
    LoginRefused,
    OptionsError,
    ProtocolViolation,
    RetriableError,
)
from pyspark_kafka_eos.client.net.credentials import kerberos
from pyspark_kafka_eos.client.net.credentials.kerberos import Kerberos
from pyspark_kafka_eos.client.net.credentials.tls import Tls
from pyspark_kafka_eos.client.net.failures import (
    ConnectionFailed,
    LoginNotAccepted,
    MechanismNotOffered,
    NameFailed,
    NoLoginExpected,
    NoRight,
    NotKafka,
    of_system,
)
from pyspark_kafka_eos.client.net.oauth.settings import OAuth

_NAME_CODES = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
"""The name service has answered that there is no such name; EAI_AGAIN and the others may pass."""

# OpenSSL's numbers of what is wrong with a certificate (x509_vfy.h).
_NOT_YET_VALID, _EXPIRED, _LIST_NOT_YET_VALID, _LIST_EXPIRED = 9, 10, 11, 12
_REVOKED, _NO_LIST = 23, 3
_OTHER_HOST = (62, 64)
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)

_ASKS_FOR_CERTIFICATE = ("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE")
"""Alerts of a listener that wants a client certificate and got none: of TLS 1.3, and of Java. OpenSSL's with TLS 1.2 is
HANDSHAKE_FAILURE, which a listener without a common cipher suite sends, too."""

_REFUSES_CERTIFICATE = (
    *("BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED", "CERTIFICATE_REVOKED", "UNKNOWN_CA"),
    *("UNSUPPORTED_CERTIFICATE", "ACCESS_DENIED", "DECRYPT_ERROR", "CERTIFICATE_REQUIRED"),
)
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_NO_COMMON_VERSION = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE")
_NO_COMMON_CIPHER = ("HANDSHAKE_FAILURE", "INSUFFICIENT_SECURITY", "NO_SHARED_CIPHER", "NO_CIPHERS_AVAILABLE")

_SET_CERTIFICATE = "set kafka.ssl.keystore.location, or kafka.ssl.certificate.location and kafka.ssl.key.location"


@dataclass(frozen=True)
class Asked:
    """What the options ask for, as the messages name it."""

    protocol: str
    mechanism: str | None
    tls: Tls | None
    oauth: OAuth | None = None
    kerberos: Kerberos | None = None
    by_token: bool = False


def root_of(error: BaseException) -> BaseException:
    """What a failure was caused by; itself where nothing else was."""
    return error if error.__cause__ is None else error.__cause__


def reason_of(error: BaseException) -> str:
    """One failure in words."""
    if isinstance(error, ConnectionFailed):
        return str(error)
    if isinstance(error, ExactlyOnceError):
        return error.message
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return of_system(error)
    return str(error) or type(error).__name__


def refusal_of(error: BaseException, server: str, asked: Asked) -> ExactlyOnceError | None:
    """The error for a failure that waiting cannot mend, None for any other. `server`: host:port."""
    root, facts = root_of(error), {"server": server}
    if isinstance(root, ExactlyOnceError):
        # A token endpoint that is away comes back.
        return None if isinstance(root, RetriableError) else root
    if isinstance(error, NameFailed):
        return _unknown_name(error, server)
    if isinstance(error, NotKafka):
        return _not_kafka(error, server, asked)
    if isinstance(root, ssl.SSLCertVerificationError):
        return _not_trusted(root, server, asked)
    if isinstance(root, ssl.SSLError):
        return _tls_failed(root, server, asked)
    if isinstance(error, LoginNotAccepted):
        said = str(error).partition(": ")[2] or str(error)
        if asked.oauth is not None:
            return LoginRefused(
                f"{server} refused the token of {asked.oauth.where}: {said}; its issuer, audience, subject or scope is not "
                "what the broker expects, or the principal is unknown to it",
                {**facts, "mechanism": asked.mechanism},
            )
        if asked.by_token:
            return LoginRefused(
                f"{server} refused the delegation token (tokenauth) for {asked.mechanism}: {said}; the token has ended or was "
                "cancelled, or the broker has no delegation.token.secret.key: have a new token made (kafka-delegation-tokens)",
                {**facts, "mechanism": asked.mechanism},
            )
        if asked.kerberos is not None:
            return LoginRefused(
                f"{server} refused the Kerberos ticket: {said}; see kafka.sasl.kerberos.service.name, and whether the broker's "
                "sasl.kerberos.principal.to.local.rules know the principal",
                {**facts, "mechanism": asked.mechanism},
            )
        return LoginRefused(
            f"{server} refused the credentials for {asked.mechanism}: {said}; correct user and password "
            "(kafka.sasl.*), or have the account made",
            {**facts, "mechanism": asked.mechanism},
        )
    if isinstance(error, MechanismNotOffered):
        return not_offered(server, asked, ())
    if isinstance(error, NoLoginExpected):
        return takes_no_login(server, asked)
    if isinstance(error, NoRight):
        return LoginRefused(f"{server} refused the connection: {error}; see its listener's rights", facts)
    if kerberos.of_gssapi(root) and asked.kerberos is not None:
        if kerberos.kdc_is_away(root):
            return None
        return LoginRefused(
            f"no Kerberos ticket for {asked.kerberos.service}@{server.rpartition(':')[0]}: {root}; {asked.kerberos.remedy}; "
            "kafka.sasl.kerberos.service.name and the brokers' names have to be those of their principals",
            {**facts, "mechanism": asked.mechanism},
        )
    if isinstance(root, (ValueError, KeyError)) and asked.mechanism is not None:
        return ProtocolViolation(
            f"the answers of {server} are no valid {asked.mechanism} exchange: {root}; it does not have the "
            "password, or is not the broker",
            {**facts, "mechanism": asked.mechanism},
        )
    return None


def not_offered(server: str, asked: Asked, mechanisms: tuple[str, ...]) -> OptionsError:
    """The listener has another mechanism. `mechanisms`: those that it has, where they are known."""
    offered = f"it offers {', '.join(mechanisms)}" if mechanisms else "see its sasl.enabled.mechanisms"
    return OptionsError(
        f"{server} does not offer kafka.sasl.mechanism={asked.mechanism}: {offered}",
        {"server": server, "mechanism": asked.mechanism, "offered": mechanisms},
    )


def wants_login(server: str, asked: Asked, mechanisms: tuple[str, ...]) -> OptionsError:
    """The listener asks for SASL, and the options have none."""
    wanted = "SASL_SSL" if asked.tls else "SASL_PLAINTEXT"
    return OptionsError(
        f"{server} asks for a login (SASL: {', '.join(mechanisms)}), but kafka.security.protocol is {asked.protocol}: "
        f"set it to {wanted}, with kafka.sasl.mechanism and the credentials",
        {"server": server, "offered": mechanisms},
    )


def takes_no_login(server: str, asked: Asked) -> OptionsError:
    """The listener does not ask for SASL, and the options have it."""
    plain = "SSL" if asked.tls else "PLAINTEXT"
    return OptionsError(
        f"{server} takes no login (SASL), but kafka.security.protocol is {asked.protocol}: set it to {plain}, "
        "or connect to the listener with SASL",
        {"server": server},
    )


def wants_tls(server: str, asked: Asked) -> OptionsError:
    """The listener speaks TLS, and the options do not."""
    wanted = "SASL_SSL" if asked.mechanism else "SSL"
    return OptionsError(
        f"{server} speaks TLS, but kafka.security.protocol is {asked.protocol}: set it to {wanted}, or connect "
        "to the listener without TLS",
        {"server": server},
    )


def wants_no_tls(server: str, asked: Asked) -> OptionsError:
    """The listener does not speak TLS, and the options do."""
    wanted = "SASL_PLAINTEXT" if asked.mechanism else "PLAINTEXT"
    return OptionsError(
        f"{server} does not speak TLS, but kafka.security.protocol is {asked.protocol}: connect to the listener "
        f"with TLS, or set it to {wanted}",
        {"server": server},
    )


def _unknown_name(error: NameFailed, server: str) -> OptionsError | None:
    if error.code not in _NAME_CODES:
        return None
    return OptionsError(
        f"no machine has the name {server.rpartition(':')[0]} (asked from this machine): correct "
        "kafka.bootstrap.servers, or have the name made",
        {"server": server},
    )


def _not_kafka(error: NotKafka, server: str, asked: Asked) -> OptionsError:
    if error.speaks == "TLS":
        return wants_tls(server, asked)
    return OptionsError(
        f"{server} answers with {error.speaks}, so it is no Kafka broker: correct kafka.bootstrap.servers",
        {"server": server},
    )


def _not_trusted(error: ssl.SSLCertVerificationError, server: str, asked: Asked) -> ExactlyOnceError | None:
    code, said, facts = error.verify_code, error.verify_message, {"server": server}
    if code in (_EXPIRED, _NOT_YET_VALID):
        which = "has expired" if code == _EXPIRED else "is not valid yet"
        return BrokerNotTrusted(
            f"the certificate of {server} {which} ({said}): renew it on the broker, or set this machine's "
            "clock; nothing was sent",
            facts,
        )
    if code in _OTHER_HOST:
        return BrokerNotTrusted(
            f"the certificate of {server} is for another host ({said}): connect by a name that it has, or have "
            "one made for this name; nothing was sent",
            facts,
        )
    if code == _REVOKED:
        return BrokerNotTrusted(
            f"the certificate of {server} is revoked ({said}): have a new one made; nothing was sent", facts
        )
    if code in (_NO_LIST, _LIST_EXPIRED, _LIST_NOT_YET_VALID):
        path = asked.tls.ssl_crlfile if asked.tls else None
        which = "has no list of the authority" if code == _NO_LIST else "is not valid now"
        return OptionsError(
            f"kafka.ssl.crl.location: {path} {which} that signed the certificate of {server} ({said}): fetch "
            "the authority's newest list; nothing was sent",
            {**facts, "file": path},
        )
    if code in _UNKNOWN_AUTHORITY:
        path = asked.tls.trusts if asked.tls else None
        trusted = (
            f"{path} (kafka.ssl.ca.location)" if path else "this machine; set kafka.ssl.ca.location to its PEM file"
        )
        return OptionsError(
            f"the certificate of {server} is signed by an authority ({said}) that is not trusted by {trusted}; "
            "nothing was sent",
            {**facts, "file": path},
        )
    return BrokerNotTrusted(f"the certificate of {server} is not accepted: {said}; nothing was sent", facts)


def _tls_failed(error: ssl.SSLError, server: str, asked: Asked) -> ExactlyOnceError | None:
    reason, facts = (error.reason or "").upper().replace(" ", "_"), {"server": server}
    path = asked.tls.identity if asked.tls else None
    is_alert = "ALERT" in reason

    def has(*names: str) -> bool:
        return any(name in reason for name in names)

    if is_alert and path is None and has(*_ASKS_FOR_CERTIFICATE):
        return OptionsError(
            f"{server} asks for a certificate of this client ({error.reason}): {_SET_CERTIFICATE}",
            facts,
        )
    if is_alert and path is not None and has(*_REFUSES_CERTIFICATE):
        return LoginRefused(
            f"{server} refused this client's certificate in {path} ({error.reason}): it is expired, revoked or "
            "of an authority that the broker does not trust; set another one",
            {**facts, "file": path},
        )
    if has(*_NO_TLS):
        return wants_no_tls(server, asked)
    if has(*_NO_COMMON_VERSION):
        return OptionsError(
            f"{server} and this client have no version of TLS in common ({error.reason}): this client needs "
            "TLS 1.2 or newer; see kafka.ssl.enabled.protocols",
            facts,
        )
    if has(*_NO_COMMON_CIPHER):
        certificate = (
            f"asks for a certificate of this client ({_SET_CERTIFICATE})" if path is None
            else f"refuses this client's certificate in {path}"
        )  # fmt: skip
        return OptionsError(
            f"{server} ended the TLS handshake ({error.reason}): it {certificate}, or has no cipher suite in common "
            "with this client (kafka.ssl.cipher.suites)",
            facts,
        )
    return None
