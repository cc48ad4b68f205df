"""A transaction at its coordinator as a state machine: pure tables, without clock or I/O."""
