"""scope=batch: a micro-batch, its ledger record and its source offsets in one Kafka transaction."""
