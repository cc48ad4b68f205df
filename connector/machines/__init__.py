"""Pure state machines: one table each. No sockets, clock, threads or randomness; events in, effects out."""
