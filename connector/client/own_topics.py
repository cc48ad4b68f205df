"""The topics that this package makes for itself, told from those of users: the ledger, and the turns beside it.

Owns: the mark that they get when they are made, and finding it.
Does not know: what is in them, who leaves them out.
Invariants: a topic without the mark is a user's.

Kafka's metadata say of its own internal topics that they are internal; nobody else's topics can say so, and Kafka takes no setting that
it does not know. So the mark is a value that nobody else chooses of a setting that does no harm: tombstones are kept 37 ms longer than by
default.
"""

from __future__ import annotations

from collections.abc import Iterable

from connector.client.cluster import Cluster
from connector.protocol import messages as m
from connector.protocol.error_codes import Code

MARK = {"delete.retention.ms": str(24 * 60 * 60 * 1000 + 37)}
"""The setting, and its value in these topics."""

_TOPIC_RESOURCE = 2


def marked(cluster: Cluster, names: Iterable[str]) -> set[str]:
    """Those of the topics that have the mark, by one question. A topic whose settings this user may not read
    (DESCRIBE_CONFIGS), or that is gone, counts as a user's."""
    request_class = m.DescribeConfigsRequest
    request = cluster.build(
        request_class,
        resources=[
            request_class.DescribeConfigsResource(
                resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=list(MARK)
            )
            for name in sorted(set(names))
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    return {
        result.resource_name
        for result in cluster.call_any(request).results
        if result.error_code == Code.NONE and {each.name: each.value for each in result.configs} == MARK
    }
