"""The topics that this package makes for itself, told from those of users: the ledger, and the turns beside it.

Owns: the mark that they get when they are made, and finding it.
Does not know: what is in them, who leaves them out.
Invariants: a topic without the mark is a user's.

Kafka's metadata say of its own internal topics that they are internal; nobody else's topics can say so, and Kafka takes
no setting that it does not know. So the mark is a value that nobody else chooses of a setting that does no harm:
tombstones are kept 37 ms longer than by default.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import admin

MARK = {"delete.retention.ms": str(24 * 60 * 60 * 1000 + 37)}
"""The setting, and its value in these topics."""


def marked(cluster: Cluster, names: Iterable[str]) -> set[str]:
    """Those of the topics that have the mark, by one question. A topic whose settings this user may not read
    (DESCRIBE_CONFIGS), or that is gone, counts as a user's."""
    found = admin.settings_of_topics(cluster, sorted(set(names)), list(MARK))
    return {name for name, settings in found.items() if settings == MARK}
