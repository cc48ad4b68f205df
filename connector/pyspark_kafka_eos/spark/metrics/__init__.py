"""What a finished micro-batch did, for listeners, Prometheus and terminals."""
