"""For the tests of people who use this package: a Kafka broker without Java, Docker or a download.

    from connector.testing import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        ... kafka.bootstrap_servers ...

With pytest the fixtures of `connector.pytest_plugin` are there by themselves.
"""

from __future__ import annotations

from connector.embedded import EmbeddedKafka, FaultHandle

__all__ = ["EmbeddedKafka", "FaultHandle"]
