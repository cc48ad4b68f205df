"""Logins of the embedded broker, ready to use: users, certificates, and the settings of clients that have them.

Owns: the files that the broker and its clients share.
Does not know: the broker's process.
Invariants: passwords are in files and in the values that a test asks for, never in arguments of a process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from embedded_kafka.private import make_private
from embedded_kafka.security.certificates import Authority
from embedded_kafka.security.tls import common_name
from embedded_kafka.security.users import HASHES
from embedded_kafka.settings.choices import unknown as unknown_name
from embedded_kafka.settings.config import STANDARD_AUTHORIZER
from kafka_core.errors import OptionsError

_PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
TOKENS = "OAUTHBEARER"
MECHANISMS = ("PLAIN", *HASHES, TOKENS)


@dataclass(frozen=True)
class Security:
    """How clients log in to an EmbeddedKafka.

    protocol: SSL, SASL_PLAINTEXT or SASL_SSL.
    mechanisms: of SASL; the first is the one of `client_settings`.
    users: names and passwords. With `client_certificates` each user also has a certificate.
    client_certificates: only clients with a certificate of the broker's authority may connect.
    acls: whether the broker has ACLs, and closes what no ACL opens. None are there at first.
    super_users: the users that ACLs do not restrict; they make the others' ACLs.
    """

    protocol: str = "SASL_SSL"
    mechanisms: tuple[str, ...] = ("SCRAM-SHA-512",)
    users: Mapping[str, str] = field(default_factory=lambda: {"alice": "alice-secret"}, repr=False)
    client_certificates: bool = False
    acls: bool = False
    super_users: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.protocol not in _PROTOCOLS:
            raise OptionsError(
                f"security: the protocol must be one of {', '.join(_PROTOCOLS)}, not {self.protocol!r}; a broker without security has PLAINTEXT",
                {"protocol": self.protocol},
            )
        self._check_users()
        if self.client_certificates and not self.uses_tls:
            raise OptionsError("security: client certificates need SSL or SASL_SSL", {"protocol": self.protocol})

        if self.super_users and not self.acls:
            raise OptionsError("security: super users have no meaning without acls")

    def _check_users(self) -> None:
        users: object = self.users  # a test's author may give anything
        if not isinstance(users, Mapping) or not all(
            isinstance(word, str) and word for pair in users.items() for word in pair
        ):
            raise OptionsError(
                'security: users must be names with passwords, {"alice": "secret"}, neither of them empty'
            )
        for what in ("mechanisms", "super_users"):
            if isinstance(given := getattr(self, what), str):
                raise OptionsError(f"security: {what} must be a tuple, ({given!r},), not a string", {what: given})
        unknown = [unknown_name("mechanism", name, MECHANISMS) for name in self.mechanisms if name not in MECHANISMS]
        if self.uses_sasl and (unknown or not self.mechanisms):
            raise OptionsError(
                f"security: {unknown[0] if unknown else f'{self.protocol} needs a mechanism; known: ' + ', '.join(MECHANISMS)}"
            )
        if not self.users and (self.client_certificates or (self.uses_sasl and set(self.mechanisms) != {TOKENS})):
            raise OptionsError(
                "security: there are no users, so nobody could log in; name some: users={'alice': 'secret'}"
            )
        # With tokens the issuer has the users, so any name may be one.
        strangers = [name for name in self.super_users if name not in self.users]
        if strangers and not (self.uses_sasl and TOKENS in self.mechanisms):
            raise OptionsError(
                f"security: {unknown_name('super user', strangers[0], list(self.users))}; a super user is one of users, by its name there"
            )

    def principal(self, user: str) -> str:
        """The user's name in ACLs: `User:alice`, or `User:CN=alice` where a certificate alone tells who the client
        is.
        """
        return f"User:{user}" if self.uses_sasl else f"User:{common_name(user)}"

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether clients log in by a mechanism."""
        return self.protocol.startswith("SASL")


class Keys:
    """The files of one broker's security, made in a directory. OptionsError where openssl, which TLS needs, cannot be
    run.
    """

    def __init__(self, security: Security, directory: Path) -> None:
        self._security = security
        self._certificates: dict[str, tuple[Path, Path]] = {}
        self._authority: Authority | None = None
        self.broker_settings: dict[str, str] = {"security.protocol": security.protocol}
        """The settings of the broker."""
        if security.acls:
            self.broker_settings |= {
                "authorizer.class.name": STANDARD_AUTHORIZER,
                "super.users": ";".join(security.principal(user) for user in security.super_users),
            }
        make_private(directory)
        if security.uses_sasl:
            users = directory / "users.json"
            users.touch(mode=0o600)
            users.write_text(json.dumps(dict(security.users)))
            self.broker_settings |= {
                "sasl.enabled.mechanisms": ",".join(security.mechanisms),
                "sasl.users.file": str(users),
            }
        if security.uses_tls:
            self._make_certificates(directory)

    def client_settings(self, user: str | None, mechanism: str | None) -> dict[str, str]:
        """What a client needs beside the address: names that librdkafka has, and this package with `kafka.` before
        them.
        """
        security = self._security
        if mechanism is not None and not (security.uses_sasl and mechanism in security.mechanisms):
            offered = (
                ", ".join(security.mechanisms) if security.uses_sasl else f"none, because it has {security.protocol}"
            )
            raise OptionsError(
                f"the embedded broker does not offer the mechanism {mechanism!r}; it offers: {offered}",
                {"mechanism": mechanism},
            )
        chosen = mechanism or security.mechanisms[0] if security.uses_sasl else None
        settings = {"security.protocol": security.protocol}
        name = next(iter(security.users), "") if user is None else user
        needed = security.client_certificates or chosen not in (None, TOKENS)
        if name not in security.users and (needed or user is not None):
            raise OptionsError(
                f"the embedded broker has no user {name!r}, only {', '.join(map(repr, security.users))}",
                {"user": name},
            )
        if self._authority is not None:
            settings["ssl.ca.location"] = str(self._authority.certificate)
        if security.client_certificates:
            certificate, key = self._certificates[name]
            settings |= {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
        if chosen is not None:
            settings["sasl.mechanism"] = chosen
            if chosen != TOKENS:
                settings |= {"sasl.username": name, "sasl.password": security.users[name]}
        return settings

    def _make_certificates(self, directory: Path) -> None:
        self._authority = Authority(directory)
        certificate, key = self._authority.issue("localhost", "broker", "server")
        store = directory / "broker-store.pem"
        store.touch(mode=0o600)
        store.write_text(key.read_text() + certificate.read_text())
        self.broker_settings["ssl.keystore.location"] = str(store)
        if self._security.client_certificates:
            self.broker_settings |= {
                "ssl.client.auth": "required",
                "ssl.truststore.location": str(self._authority.certificate),
            }
            for number, name in enumerate(self._security.users):
                self._certificates[name] = self._authority.issue(name, f"user-{number}", "client")
