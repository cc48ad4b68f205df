"""What both sides of a soak agree about."""

TOPIC, LEDGER, PIPELINE = "soak", "exactly-once-ledger", "soak"
PARTITIONS = 4
ROWS_PER_BATCH = 200
TASKS = 4
TRIGGER_MS = 200
