"""The options of a login by token, as one value.

Owns: the fields of the pairs oauth_* in `ClientSettings.security`.
Does not know: endpoints, files, the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pyspark_kafka_eos.model import Secret


@dataclass(frozen=True)
class OAuth:
    """`method`: client_credentials, jwt_bearer, file, provider or unsecured. Times are texts of whole numbers, in
    seconds (_s) or milliseconds (_ms); `refresh_factor` is a share of a token's life. The options judge what each
    method needs.
    """

    method: str
    url: str = ""
    client_id: str | Secret = ""
    client_secret: Secret = field(default_factory=lambda: Secret(""))
    scope: str = ""
    urlencode: bool = False
    assertion_file: str | None = None
    key_file: str | None = None
    key_data: Secret | None = None
    key_password: Secret | None = None
    template_file: str | None = None
    algorithm: str = "RS256"
    audience: str | None = None
    issuer: str | None = None
    subject: str | None = None
    expires_s: str = "300"
    not_before_s: str = "60"
    jti: bool = False
    provider: str = ""
    config: Secret = field(default_factory=lambda: Secret(""))
    extensions: str = ""
    cafile: str | None = None
    cadata: str | None = None
    connect_ms: str = "10000"
    read_ms: str = "10000"
    refresh_factor: str = "0.8"

    @staticmethod
    def from_settings(security: Mapping[str, Any]) -> OAuth | None:
        """From the pairs of the settings; None where the login is another one."""
        if "oauth_method" not in security:
            return None
        names = {each.name for each in fields(OAuth)}
        found = {name.removeprefix("oauth_"): value for name, value in security.items()}
        return OAuth(**{name: value for name, value in found.items() if name in names})

    @property
    def where(self) -> str:
        """Where tokens come from, for messages."""
        if self.method == "provider":
            return f"the token provider {self.provider}"
        if self.method == "unsecured":
            return "kafka.sasl.jaas.config"
        return f"the token endpoint {self.url}" if self.method != "file" else self.url

    def pairs(self) -> dict[str, str]:
        """The SASL extensions."""
        return dict(each.split("=", 1) for each in self.extensions.split(",") if each)
