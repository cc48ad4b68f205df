"""The consumer group as a state machine: pure tables, without clock or I/O."""
