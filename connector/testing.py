"""For the tests of people who use this package: a Kafka broker without Java, Docker or a download.

    from connector.testing import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        ... kafka.bootstrap_servers ...

With pytest the fixtures of `connector.pytest_plugin` are available automatically.
"""

from __future__ import annotations

from connector.broker.security.prepared import Security
from connector.embedded import EmbeddedKafka, FaultHandle

__all__ = ["EmbeddedKafka", "FaultHandle", "Security"]
