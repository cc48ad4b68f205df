"""OAUTHBEARER: the Java client's (KIP-768, KIP-1139), librdkafka's and JAAS's names for it, as the fields that
`pyspark_kafka_eos.client.net.oauth` reads.

Owns: which names exist, where a token can come from, which names each of these uses.
Does not know: whether an endpoint answers, a file exists or a provider can be imported.
Invariants:
- No message contains a secret, and a secret leaves this module only as a `Secret`.
- Of two names for one thing one is accepted; a name that the way to the token does not use is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter

from pyspark_kafka_eos.model import Secret
from pyspark_kafka_eos.model.references import maybe_secret, secret
from pyspark_kafka_eos.options.login.jaas import Jaas
from pyspark_kafka_eos.options.values import FLAG, Kind

Value = str | bool | Secret | None

MECHANISMS = ("OAUTHBEARER", "AWS_MSK_IAM")
PRESETS = ("aws-msk-iam", "azure", "google")

_JAVA = "org.apache.kafka.common.security.oauthbearer."
_CREDENTIALS, _ASSERTION, _FILE, _PROVIDER, _UNSECURED = (
    "client_credentials", "jwt_bearer", "file", "provider", "unsecured",
)  # fmt: skip


_NAME = re.compile(r"[A-Za-z_]\w*")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_EXTENSION = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
"""RFC 7628, 3.1. `auth` is the token itself."""


def _kind(expected: str, read: Callable[[str], Value]) -> Kind:
    """A kind whose refused values are not repeated: what `read` makes of a text, None for a refusal."""

    def checked(text: str) -> Value:
        if (value := read(text)) is None:
            raise ValueError("refused")
        return value

    return Kind(expected, TypeAdapter(Annotated[Any, BeforeValidator(checked)]), shown=False)


def _text_if(expected: str, good: Callable[[str], object]) -> Kind:
    return _kind(expected, lambda text: text if good(text) else None)


def _is_config(text: str) -> bool:
    try:
        words = shlex.split(text)
    except ValueError:
        return False
    names = [word.partition("=") for word in words]
    return all(equals and _NAME.fullmatch(name) for name, equals, _ in names)


def _are_extensions(text: str) -> bool:
    pairs = [_EXTENSION.fullmatch(each) for each in text.split(",")]
    return all(each is not None and each[1] != "auth" for each in pairs)


_TEXT, _SECRET, _MAYBE_SECRET = (_kind("a text", read) for read in (str, secret, maybe_secret))
_FLAG = replace(FLAG, shown=False)
_NUMBER = _text_if("a whole number", lambda text: text.isascii() and text.isdigit() and len(text) < 10)
_FACTOR = _text_if("0.5 to 1", re.compile(r"0\.[5-9]\d*|1(\.0*)?").fullmatch)
_ALGORITHM = _text_if("RS256 or ES256", ("RS256", "ES256").__contains__)
_PROVIDERS = _text_if(
    f"{', '.join(PRESETS)}, or module:function of an own provider",
    lambda text: text in PRESETS or _FUNCTION.fullmatch(text),
)
_EXTENSIONS = _text_if("name=value pairs separated by commas, the names of letters, none of them auth", _are_extensions)
_CONFIG = _kind(
    "name=value pairs separated by blanks (it is not repeated here)",
    lambda text: Secret(text) if _is_config(text) else None,
)


@dataclass(frozen=True)
class _Row:
    """One field. `names`: those of the options, without `kafka.sasl.oauthbearer.` unless they begin with a word of
    `_WHOLE`.
    """

    field: str
    names: tuple[str, ...]
    meaning: str
    used_by: tuple[str, ...]
    kind: Kind = _TEXT
    jaas: str | None = None


_ENDPOINT = (_CREDENTIALS, _ASSERTION)
_ROWS = (
    _Row("url", ("token.endpoint.url",), "https: address of the token endpoint; or file: path of a file with the token",
         (*_ENDPOINT, _FILE)),
    _Row("client_id", ("client.credentials.client.id", "client.id"), "client id for the token endpoint",
         (_CREDENTIALS,), _MAYBE_SECRET, "clientId"),
    _Row("client_secret", ("client.credentials.client.secret", "client.secret"), "client secret for the token endpoint",
         (_CREDENTIALS,), _SECRET, "clientSecret"),
    _Row("scope", ("scope",), "scope to ask for", (*_ENDPOINT,), _TEXT, "scope"),
    _Row("urlencode", ("header.urlencode",), "true: client id and secret are URL-encoded in the header (RFC 6749, 2.3.1; default false)",
         (_CREDENTIALS,), _FLAG),
    _Row("assertion_file", ("assertion.file",), "file with the signed assertion, for JWT bearer (RFC 7523)", (_ASSERTION,)),
    _Row("key_file", ("assertion.private.key.file",), "PEM file of the key that signs assertions (needs the extra oauth)", (_ASSERTION,)),
    _Row("key_data", ("assertion.private.key.pem",), "that key in PEM, instead of a file", (_ASSERTION,), _SECRET),
    _Row("key_password", ("assertion.private.key.passphrase",), "opens that key", (_ASSERTION,), _SECRET),
    _Row("template_file", ("assertion.template.file", "assertion.jwt.template.file"),
         "JSON file with more of the assertion's `header` and `payload`", (_ASSERTION,)),
    _Row("algorithm", ("assertion.algorithm",), "RS256 (default) or ES256", (_ASSERTION,), _ALGORITHM),
    _Row("audience", ("assertion.claim.aud",), "claim aud of the assertion", (_ASSERTION,)),
    _Row("issuer", ("assertion.claim.iss",), "claim iss of the assertion", (_ASSERTION,)),
    _Row("subject", ("assertion.claim.sub",), "claim sub of the assertion", (_ASSERTION,)),
    _Row("expires_s", ("assertion.claim.exp.seconds",), "seconds that an assertion is valid (default 300)", (_ASSERTION,), _NUMBER),
    _Row("not_before_s", ("assertion.claim.nbf.seconds",), "seconds that an assertion is valid before it is made (default 60)",
         (_ASSERTION,), _NUMBER),
    _Row("jti", ("assertion.claim.jti.include",), "true: an assertion has an id of its own (default false)", (_ASSERTION,), _FLAG),
    _Row("provider", ("token.provider",),
         "aws-msk-iam, azure or google; or module:function of an own provider (docs/security.md)", (_PROVIDER,), _PROVIDERS),
    _Row("config", ("config",), "what the provider gets: name=value separated by blanks", (_PROVIDER,), _CONFIG),
    _Row("extensions", ("extensions",), "SASL extensions, name=value separated by commas",
         (*_ENDPOINT, _FILE, _PROVIDER, _UNSECURED), _EXTENSIONS),
    _Row("cafile", ("https.ca.location",), "PEM file of the authorities that the token endpoint's certificate may be of",
         _ENDPOINT),
    _Row("cadata", ("https.ca.pem",), "those authorities in PEM, instead of a file", _ENDPOINT),
    _Row("connect_ms", ("sasl.login.connect.timeout.ms",), "longest wait for a connection to the token endpoint (default 10000)",
         _ENDPOINT, _NUMBER),
    _Row("read_ms", ("sasl.login.read.timeout.ms",), "longest wait for its answer (default 10000)", _ENDPOINT, _NUMBER),
    _Row("refresh_factor", ("sasl.login.refresh.window.factor",),
         "share of a token's life after which a login asks for a new one (0.5 to 1, default 0.8)",
         (*_ENDPOINT, _PROVIDER, _UNSECURED), _FACTOR),
)  # fmt: skip
_WHOLE = ("https.", "sasl.")


def _full(name: str) -> str:
    return name if name.startswith(_WHOLE) else f"sasl.oauthbearer.{name}"


_METHOD, _GRANT, _RETRIEVER, _VALIDATOR = (
    f"sasl.oauthbearer.{each}" for each in ("method", "grant.type", "jwt.retriever.class", "jwt.validator.class")
)  # fmt: skip
LOGIN_HANDLER, CLIENT_HANDLER = "sasl.login.callback.handler.class", "sasl.client.callback.handler.class"

OAUTH_NAMES: dict[str, str] = {
    **{_full(row.names[0]): row.meaning for row in _ROWS},
    **{
        _full(name): f"librdkafka's name of kafka.{_full(row.names[0])}" for row in _ROWS for name in row.names[1:]
    },
    _METHOD: "librdkafka's: oidc for a token endpoint; may be left out",
    _GRANT: "librdkafka's: client_credentials (default) or urn:ietf:params:oauth:grant-type:jwt-bearer",
    _RETRIEVER: "Java's ClientCredentialsJwtRetriever, JwtBearerJwtRetriever, FileJwtRetriever or DefaultJwtRetriever; may be left out",
    _VALIDATOR: "Java's DefaultJwtValidator or ClientJwtValidator; has no effect: the broker judges the token",
    LOGIN_HANDLER: "Java's OAuthBearerLoginCallbackHandler, or the handler of MSK or Google for their tokens",
    CLIENT_HANDLER: "Java's IAMClientCallbackHandler for kafka.sasl.mechanism=AWS_MSK_IAM; may be left out",
}  # fmt: skip
"""Every name of OAUTHBEARER and its meaning for the documentation."""

OAUTH_SECRETS = frozenset(_full(name) for row in _ROWS if row.kind in (_SECRET, _CONFIG) for name in row.names)

_RETRIEVERS = {
    "ClientCredentialsJwtRetriever": _CREDENTIALS,
    "JwtBearerJwtRetriever": _ASSERTION,
    "FileJwtRetriever": _FILE,
    "DefaultJwtRetriever": None,
}
_GRANTS = {
    "client_credentials": _CREDENTIALS,
    "urn:ietf:params:oauth:grant-type:jwt-bearer": _ASSERTION,
}
_HANDLERS = {
    f"{_JAVA}OAuthBearerLoginCallbackHandler": None,
    f"{_JAVA}secured.OAuthBearerLoginCallbackHandler": None,
    f"{_JAVA}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler": None,
    "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler": "aws-msk-iam",
    "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler": "google",
}
_IAM_HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
_IAM_OPTIONS = {
    "awsProfileName": "profile", "awsRoleArn": "role_arn", "awsRoleSessionName": "role_session_name",
}  # fmt: skip
_UNSECURED_OPTIONS = {
    "unsecuredLoginStringClaim_sub": "subject", "unsecuredLoginStringClaim_scope": "scope",
    "unsecuredLoginLifetimeSeconds": "expires_s",
}  # fmt: skip
_NEEDS = {
    _CREDENTIALS: (("url",), ("client_id",), ("client_secret",)),
    _ASSERTION: (("url",), ("assertion_file", "key_file", "key_data")),
    _FILE: (("url",),),
    _PROVIDER: (("provider",),),
    _UNSECURED: (("subject",),),
}
_WORDS = {
    _CREDENTIALS: "client credentials", _ASSERTION: "JWT bearer", _FILE: "a token from a file", _PROVIDER: "a token provider",
    _UNSECURED: "an unsecured token",
}  # fmt: skip


def translate_oauth(
    given: Mapping[str, str], mechanism: str, jaas: Jaas | None, problems: list[str]
) -> dict[str, Value]:
    """The pairs of a login by token, named oauth_*. Every unusable name or combination adds a line to `problems`."""
    found: dict[str, Value] = {}
    spelt: dict[str, str] = {}
    for row in _ROWS:
        for name in map(_full, row.names):
            if name in given:
                _put(
                    row.field,
                    f"kafka.{name}",
                    _read(row, name, given[name], problems),
                    found,
                    spelt,
                    problems,
                )
    if mechanism == "AWS_MSK_IAM":
        _read_iam(given, jaas, found, spelt, problems)
    else:
        _read_handler(given, found, spelt, problems)
        if CLIENT_HANDLER in given:
            problems.append(f"kafka.{CLIENT_HANDLER}: a Java class cannot be loaded here; leave it out")
        if jaas is not None:
            _read_options(jaas, found, spelt, problems)
    method = _method(given, found, problems)
    if method is None:
        return {}
    _judge(method, found, spelt, problems)
    found["method"] = method
    return {f"oauth_{field}": value for field, value in found.items()}


def _put(
    field: str, name: str, value: Value, found: dict[str, Value], spelt: dict[str, str], problems: list[str]
) -> None:
    if field in spelt:
        problems.append(f"{spelt[field]} and {name} are both given: keep one of them")
    spelt[field], found[field] = name, value


def _read(row: _Row, name: str, text: str, problems: list[str]) -> Value:
    """The value; the text itself, after a line in `problems`, where it is none."""
    value: Value = row.kind.read(f"kafka.{name}", text, problems)
    return text if value is None else value


def _read_handler(
    given: Mapping[str, str], found: dict[str, Value], spelt: dict[str, str], problems: list[str]
) -> None:
    """The Java class that a migrated job names for its tokens."""
    name = given.get(LOGIN_HANDLER)
    if name is None:
        return
    # A shaded class is the same one.
    known = next((each for each in _HANDLERS if name == each or name.endswith(f".{each}")), None)
    if known is None:
        problems.append(
            f"kafka.{LOGIN_HANDLER}: a Java class cannot be loaded here; leave it out, or give a function of Python as "
            "kafka.sasl.oauthbearer.token.provider=module:function"
        )
    elif (preset := _HANDLERS[known]) is not None:
        _put("provider", f"kafka.{LOGIN_HANDLER}", preset, found, spelt, problems)


def _read_options(jaas: Jaas, found: dict[str, Value], spelt: dict[str, str], problems: list[str]) -> None:
    """The options of OAuthBearerLoginModule, in JAAS."""
    if jaas.short != "OAuthBearerLoginModule":
        problems.append(f"kafka.sasl.jaas.config names {jaas.named}, but OAUTHBEARER needs OAuthBearerLoginModule")
        return
    of = {row.jaas: row for row in _ROWS if row.jaas is not None}
    extensions = []
    for name, text in jaas.options.items():
        shown = f"{name} of kafka.sasl.jaas.config" if _NAME.fullmatch(name) else "a name of kafka.sasl.jaas.config"
        if name in of:
            _put(of[name].field, shown, _read(of[name], shown, text, problems), found, spelt, problems)
        elif name.startswith(("extension_", "unsecuredLoginExtension_")):
            extensions.append(f"{name.partition('_')[2]}={text}")
        elif name in _UNSECURED_OPTIONS:
            field = _UNSECURED_OPTIONS[name]
            if field == "expires_s" and not text.isdigit():
                problems.append(f"{shown} must be a whole number")
            _put(field, shown, text, found, spelt, problems)
        elif name == "ssl.truststore.type" and text.upper() == "PEM":
            continue
        elif name == "ssl.truststore.location" and jaas.options.get("ssl.truststore.type", "").upper() == "PEM":
            _put("cafile", shown, text, found, spelt, problems)
        elif name == "ssl.truststore.certificates":
            _put("cadata", shown, text, found, spelt, problems)
        else:
            wanted = (
                "; the token endpoint's authorities are given in PEM, as kafka.https.ca.location"
                if name[:4] == "ssl."
                else ""
            )
            problems.append(f"{shown} has no meaning here{wanted}; leave it out")
    if extensions:
        row = next(row for row in _ROWS if row.field == "extensions")
        text = ",".join(extensions)
        _put("extensions", "extension_... of kafka.sasl.jaas.config", _read(row, "sasl.jaas.config: its extensions", text, problems),
             found, spelt, problems)  # fmt: skip


def _read_iam(
    given: Mapping[str, str],
    jaas: Jaas | None,
    found: dict[str, Value],
    spelt: dict[str, str],
    problems: list[str],
) -> None:
    """AWS_MSK_IAM of aws-msk-iam-auth: MSK's listener takes the same signature by OAUTHBEARER."""
    if given.get(CLIENT_HANDLER, _IAM_HANDLER) != _IAM_HANDLER or LOGIN_HANDLER in given:
        problems.append(
            "a Java class cannot be loaded here, and AWS_MSK_IAM needs none: leave the callback handlers out"
        )
    _put("provider", "kafka.sasl.mechanism=AWS_MSK_IAM", "aws-msk-iam", found, spelt, problems)
    if jaas is None:
        return
    if jaas.short != "IAMLoginModule":
        problems.append(f"kafka.sasl.jaas.config names {jaas.named}, but AWS_MSK_IAM needs IAMLoginModule")
        return
    strange = sorted(set(jaas.options) - {*_IAM_OPTIONS, "awsDebugCreds"})
    if strange:
        known = ", ".join(_IAM_OPTIONS)
        problems.append(
            f"kafka.sasl.jaas.config has more than {known}; only these have a meaning here; leave the rest out"
        )
    words = [f"{_IAM_OPTIONS[name]}={text}" for name, text in jaas.options.items() if name in _IAM_OPTIONS]
    if words:
        _put("config", "kafka.sasl.jaas.config", Secret(shlex.join(words)), found, spelt, problems)


def _method(given: Mapping[str, str], found: Mapping[str, Value], problems: list[str]) -> str | None:
    """Where the token comes from; None after a line in `problems`."""
    if given.get(_METHOD, "oidc").lower() != "oidc":
        problems.append(
            f"kafka.{_METHOD} must be oidc; for other tokens leave it out and set kafka.sasl.oauthbearer.token.provider"
        )
        return None
    validator = given.get(_VALIDATOR, "DefaultJwtValidator").rpartition(".")[2]
    if validator not in ("DefaultJwtValidator", "ClientJwtValidator"):
        problems.append(f"kafka.{_VALIDATOR}: a Java class cannot be loaded here; leave it out")
    asked = []
    for name, known, key in ((_RETRIEVER, _RETRIEVERS, given.get(_RETRIEVER, "").rpartition(".")[2]),
                             (_GRANT, _GRANTS, given.get(_GRANT, "").lower())):  # fmt: skip
        if name in given and key not in known:
            problems.append(f"kafka.{name} must be one of {', '.join(known)}")
            return None
        if name in given and known[key] is not None:
            asked.append(known[key])
    if "provider" in found:
        asked.append(_PROVIDER)
    if len(set(asked)) > 1:
        problems.append(
            f"kafka.{_RETRIEVER}, kafka.{_GRANT} and a token provider contradict each other: keep one of them"
        )
        return None
    if asked:
        return asked[0]
    url = str(found.get("url", ""))
    if url.startswith("file:"):
        return _FILE
    if "subject" in found and "url" not in found:
        return _UNSECURED
    return _ASSERTION if found.keys() & {"assertion_file", "key_file", "key_data"} else _CREDENTIALS


def _judge(method: str, found: Mapping[str, Value], spelt: Mapping[str, str], problems: list[str]) -> None:
    """Whether the method has what it needs, and nothing else."""
    fields = {row.field: row for row in _ROWS}
    missing = [each for each in _NEEDS[method] if not any(found.get(one) not in (None, "") for one in each)]
    if missing:
        names = " and ".join(" or ".join(f"kafka.{_full(fields[one].names[0])}" for one in each) for each in missing)
        problems.append(
            f"OAUTHBEARER with {_WORDS[method]} needs {names}; a token can also come from kafka.sasl.oauthbearer.token.provider"
        )
    for field in found:
        allowed = (*fields[field].used_by, *((_UNSECURED,) if field in _UNSECURED_OPTIONS.values() else ()))
        if method not in allowed:
            problems.append(f"{spelt[field]} has no effect with {_WORDS[method]}: leave it out")
    if "assertion_file" in found and found.keys() & {"key_file", "key_data"}:
        problems.append("an assertion comes from a file or is signed with a key: keep one of them")
    for one, other in (("key_file", "key_data"), ("cafile", "cadata")):
        if one in found and other in found:
            problems.append(f"{spelt[one]} and {spelt[other]} are both given: keep one of them")
    url, schemes = str(found.get("url", "")), ("file:",) if method == _FILE else ("https://", "http://")
    if "url" in found and not url.startswith(schemes):
        problems.append(f"kafka.sasl.oauthbearer.token.endpoint.url must begin with {' or '.join(schemes)}")
    elif "@" in url.partition("://")[2].partition("/")[0]:
        problems.append(
            "kafka.sasl.oauthbearer.token.endpoint.url has a user in it (it is not repeated here): leave it out"
        )
