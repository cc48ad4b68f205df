"""Which secrets Spark would show: options of a format stand in plans, in Spark's UI, its REST API and the event log.

Owns: what Spark hides of them, and which values are no secret under a name that has some.
Does not know: which options there are, how a login is made of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.model.references import reference
from pyspark_kafka_eos.options.login.security import SECRET_NAMES

_HIDDEN = re.compile(r"(?i)secret|password|token|access[.]?key")
"""What Spark hides a value for, in its name or in itself: the default of spark.redaction.regex (Spark 4.0 to 4.2). This
process does not see another one that an application sets; it may show more."""

_KAFKA = "kafka."
_CONFIG = "sasl.oauthbearer.config"
_NO_SECRETS = frozenset(
    (
        "region", "profile", "role_arn", "role_session_name", "scope", "tenant", "tenant_id", "client_id",
        "managed_identity", "authority", "audience",
    )
)  # fmt: skip
"""What a provider is told that is no secret: what the presets take, and what their like is called elsewhere."""

_JAAS = "sasl.jaas.config"
"""Each of its options that is a secret has a name for which Spark hides the whole text."""


NOT_HIDDEN = rf"(?i)kafka\.({'|'.join(re.escape(name) for name in sorted(SECRET_NAMES) if not _HIDDEN.search(name))})$"
"""The names of secrets that Spark does not hide, as a pattern of Java's."""

HIDDEN_IN_STATEMENTS = (
    rf'(?i)key: "kafka\.({"|".join(re.escape(name) for name in sorted(SECRET_NAMES))})"'
    r'\s+value: "(?:[^"\\]++|\\.)*+"'
)
"""An option with a secret as a server of Spark Connect writes it into the text of a statement (protobuf's text
format), as a pattern of Java's. Possessive: Java's matcher would need a stack for every character of a key.
"""


def refuse_in_clear(options: Mapping[str, str]) -> None:
    """OptionsError for secrets by value that Spark would show. `options`: those of a format, as Spark has them."""
    shown = sorted(_shown(options))
    if not shown:
        return
    names = ", ".join(shown)
    one = len(shown) == 1
    raise OptionsError(
        f"{names} {'is a secret that is' if one else 'are secrets that are'} given by {'its' if one else 'their'} text, and "
        f"Spark shows the options of a format in plans, its UI and the event log. Nothing was read or written. Name the place "
        f"instead: ${{file:/path/of/it}}, ${{file:/path:key}}, ${{directory:/path:name}} or ${{env:NAME}} (docs/security.md)"
    )


def _shown(options: Mapping[str, str]) -> Iterator[str]:
    for name, value in options.items():
        key = name.lower().removeprefix(_KAFKA)
        if not name.lower().startswith(_KAFKA) or key not in SECRET_NAMES or key == _JAAS:
            continue
        if _HIDDEN.search(name) or _HIDDEN.search(value) or reference(value.strip()) is not None:
            continue
        if key != _CONFIG or any(map(_tells, value.split())):
            yield name


def _tells(pair: str) -> bool:
    """Whether a pair of the provider's configuration may be a secret."""
    name, _, value = pair.partition("=")
    return name not in _NO_SECRETS and reference(value) is None
