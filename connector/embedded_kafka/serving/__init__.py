"""A running cluster: its brokers with what they share, the control socket, and how long all of it runs.

Owns: `serve` and `judge`, which start it and say whether it could be started.
Does not know: processes and threads.
"""

from embedded_kafka.serving.serve import judge, serve

__all__ = ["judge", "serve"]
