"""Which version a request is sent in: the highest that both this package and the broker that is asked have.

Owns: the choice, and requests that are built only when it is known which connection carries them.
Does not know: sockets, which broker is asked.
Invariants:
- A request is built in a version that its own connection supports, whatever another broker has said: brokers differ
  while a cluster is upgraded.
- No version is above `HIGHEST`, and none would ask for a newer class of transactions than the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_core.errors import UnsupportedVersion
from kafka_core.protocol import messages as m

NO_TRANSACTION = 1
"""The class to give for a request that is of no transaction: no class limits its versions."""


@dataclass(frozen=True)
class Versions:
    """What one broker supports: (lowest, highest) version of each API, by its key. `broker`: its id, or the name of a
    connection to it, for messages.
    """

    apis: Mapping[int, tuple[int, int]]
    broker: int | str = ""

    def of(self, request: type[Any], transaction_version: int) -> int:
        """The version to send a request in; UnsupportedVersion where broker and package have none in common.

        `transaction_version`: the class of the caller's transactions, or of the cluster's where the request is of none.
        """
        key: int = request.API_KEY
        lowest, highest = self.apis.get(key, (0, -1))
        best = min(highest, m.HIGHEST[key])
        if transaction_version < 2:
            best = min(best, m.HIGHEST_TV1.get(key, best))
        if best < lowest:
            raise UnsupportedVersion(
                f"the broker offers {m.api_name(key)} in versions {lowest} to {highest}, none of which this package "
                "supports; nothing was written; use Kafka 3.0 or newer",
                {"api": m.api_name(key), "broker": self.broker, "broker_lowest": lowest, "broker_highest": highest},
            )
        return best

    def supports(self, request: type[Any], version: int) -> bool:
        """Whether the broker supports an API in exactly this version, whatever this package asks for otherwise."""
        lowest, highest = self.apis.get(request.API_KEY, (0, -1))
        return lowest <= version <= highest

    def exactly(self, request: type[Any], version: int) -> int:
        """This version, which the request has to be in; UnsupportedVersion where the broker does not support it."""
        if not self.supports(request, version):
            name = m.api_name(request.API_KEY)
            raise UnsupportedVersion(
                f"broker {self.broker} does not support {name} in version {version}, which other brokers of the cluster do; "
                "nothing was done; upgrade it, or wait until the upgrade that is under way is finished",
                {"api": name, "broker": self.broker, "version": version},
            )
        return version

    def offers(self, request: type[Any], version: int) -> bool:
        """Whether the broker supports an API in this version, or in a newer one that this package has."""
        lowest, highest = self.apis.get(request.API_KEY, (0, -1))
        return lowest <= m.HIGHEST[request.API_KEY] and version <= min(highest, m.HIGHEST[request.API_KEY])


Build = Callable[[Versions], m.Message]
"""Makes a request for the broker whose versions are given. Called on the network loop's thread, once for a sending."""

Request = m.Message | Build
"""A finished request, or what makes it once the connection is known."""


def built(request: Request, versions: Versions) -> m.Message:
    """The request as this broker gets it."""
    return request(versions) if callable(request) else request
