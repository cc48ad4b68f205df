"""The ledger topic: decisions, the notes beside them, and how both are read."""
