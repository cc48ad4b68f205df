"""Tokens of three platforms, by their own libraries, each an extra of this package and imported at its first use alone.

Owns: what each library is asked, the form in which the platform's brokers want the token, which of the library's
failures may pass.
Does not know: when a token is asked for.
Invariants: a failure that may pass is a ConnectionError, as `provider` wants it of every function.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timezone
from typing import Any

from kafka_core import runtime
from kafka_core.errors import OptionsError
from pyspark_kafka_eos.client.net.oauth.assertion import encoded, unpadded

Found = tuple[str, float]
"""A token, and when it ends (seconds since 1970)."""

_MSK_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?$")
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_CONFIG = "kafka.sasl.oauthbearer.config"


@dataclass(frozen=True)
class Preset:
    """One platform. `ask` gets the cluster's servers and those of `takes` that the configuration has."""

    package: str
    module: str
    extra: str
    takes: tuple[str, ...]
    ask: Callable[..., Found]

    def __call__(self, servers: tuple[str, ...], **given: str) -> Found:
        return self.ask(servers, **given)

    def check(self, given: Mapping[str, str]) -> None:
        """OptionsError where its library is missing, or the configuration has another name."""
        strange = sorted(set(given) - set(self.takes))
        if strange:
            raise OptionsError(
                f"{_CONFIG} has {', '.join(strange)}, but only {', '.join(self.takes)} have a meaning here"
            )
        try:
            missing = importlib.util.find_spec(self.module) is None
        except ModuleNotFoundError:
            missing = True
        if missing:
            raise OptionsError(
                f"this login needs the Python package {self.package} on the driver and on every executor: "
                f"pip install 'pyspark-kafka-eos[{self.extra}]'; nothing was opened"
            )


def _msk(
    servers: tuple[str, ...],
    region: str = "",
    profile: str = "",
    role_arn: str = "",
    role_session_name: str = "",
) -> Found:
    """A request to MSK that is signed here (SigV4); without a role no service is asked."""
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    from botocore.exceptions import HTTPClientError

    region = region or next((found[1] for each in servers if (found := _MSK_HOST.search(each))), "")
    if not region:
        raise OptionsError(f"the servers' names do not show the region of the cluster: set {_CONFIG}=region=...")
    try:
        if role_arn:
            name = role_session_name or MSKAuthTokenProvider.DEFAULT_STS_SESSION_NAME
            token, ends_ms = MSKAuthTokenProvider.generate_auth_token_from_role_arn(region, role_arn, name)
        elif profile:
            token, ends_ms = MSKAuthTokenProvider.generate_auth_token_from_profile(region, profile)
        else:
            token, ends_ms = MSKAuthTokenProvider.generate_auth_token(region)
    except HTTPClientError as error:
        raise ConnectionError(str(error)) from error
    except AttributeError as error:
        # The library takes the credentials that it has not found for credentials.
        raise LookupError("no AWS credentials were found on this machine") from error
    return token, ends_ms / 1000


def _azure(
    servers: tuple[str, ...],
    scope: str = "",
    tenant_id: str = "",
    client_id: str = "",
    client_secret: str = "",
    managed_identity: str = "false",
    authority: str = "",
) -> Found:
    """A token of Entra ID: of a service principal, of a managed identity, or of what the machine has."""
    from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError, ServiceResponseError
    from azure.identity import ClientSecretCredential, DefaultAzureCredential, ManagedIdentityCredential

    # An Event Hubs namespace is its own resource.
    scope = scope or f"https://{servers[0].rpartition(':')[0]}/.default"
    # An authority of a private cloud is not one of those that Microsoft's own knows.
    cloud: dict[str, Any] = {"authority": authority, "disable_instance_discovery": True} if authority else {}
    credential: ClientSecretCredential | ManagedIdentityCredential | DefaultAzureCredential
    if client_secret:
        credential = ClientSecretCredential(tenant_id, client_id, client_secret, **cloud)
    elif managed_identity.lower() == "true":
        credential = ManagedIdentityCredential(client_id=client_id or None)
    else:
        credential = DefaultAzureCredential(**cloud)
    try:
        found = credential.get_token(scope)
    except (ServiceRequestError, ServiceResponseError) as error:
        raise ConnectionError(str(error)) from error
    except ClientAuthenticationError as error:
        # The library gives this class also to a service that it cannot reach.
        if isinstance(error.__cause__, (OSError, ServiceRequestError, ServiceResponseError)):
            raise ConnectionError(str(error)) from error
        raise
    finally:
        credential.close()
    return found.token, float(found.expires_on)


def _google(_servers: tuple[str, ...], credentials_file: str = "", principal: str = "") -> Found:
    """An access token in the shape of a JWT, as Managed Service for Apache Kafka reads it."""
    import google.auth
    from google.auth.exceptions import RefreshError, TransportError
    from google.auth.transport.requests import Request

    # A part of the library has no types.
    library: Any = google.auth
    if credentials_file:
        credentials, _ = library.load_credentials_from_file(credentials_file, scopes=[_GOOGLE_SCOPE])
    else:
        credentials, _ = library.default(scopes=[_GOOGLE_SCOPE])
    try:
        credentials.refresh(Request())
    except TransportError as error:
        raise ConnectionError(str(error)) from error
    except RefreshError as error:
        if error.retryable:
            raise ConnectionError(str(error)) from error
        raise
    who = principal or getattr(credentials, "service_account_email", "")
    if not who:
        raise OptionsError(f"the credentials of this machine have no e-mail address: set {_CONFIG}=principal=...")
    # The library's time has no zone, and is UTC.
    ends = credentials.expiry.replace(tzinfo=timezone.utc).timestamp()
    claims = {"exp": ends, "iat": runtime.time(), "iss": "Google", "scope": "kafka", "sub": who}
    head = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    return f"{encoded(head)}.{encoded(claims)}.{unpadded(credentials.token.encode())}", ends


PRESETS: Mapping[str, Preset] = {
    "aws-msk-iam": Preset(
        "aws-msk-iam-sasl-signer-python",
        "aws_msk_iam_sasl_signer",
        "msk",
        ("region", "profile", "role_arn", "role_session_name"),
        _msk,
    ),
    "azure": Preset(
        "azure-identity",
        "azure.identity",
        "azure",
        ("scope", "tenant_id", "client_id", "client_secret", "managed_identity", "authority"),
        _azure,
    ),
    "google": Preset("google-auth", "google.auth", "gcp", ("credentials_file", "principal"), _google),
}
"""By the value of kafka.sasl.oauthbearer.token.provider."""
