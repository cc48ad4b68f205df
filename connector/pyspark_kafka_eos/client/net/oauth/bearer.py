"""kafka-python's face of a token.

Owns: the token of one login, as the library asks for it.
Does not know: where it is from.
"""

from __future__ import annotations

from kafka.net.sasl.oauth import AbstractTokenProvider

from pyspark_kafka_eos.client.net.oauth.settings import OAuth


class Bearer(AbstractTokenProvider):  # type: ignore[misc]
    """A token that is there already, so that the library does not wait on its loop."""

    def __init__(self, token: str, oauth: OAuth | None) -> None:
        super().__init__()
        self._token, self._extensions = token, {} if oauth is None else oauth.pairs()

    def token(self) -> str:
        """The token."""
        return self._token

    def extensions(self) -> dict[str, str]:
        """The SASL extensions."""
        return self._extensions

    def __repr__(self) -> str:
        return "<Bearer, not shown>"
