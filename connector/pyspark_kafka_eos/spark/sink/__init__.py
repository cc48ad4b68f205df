"""Writing from Spark: `format("kafka_eos")`, `foreachBatch`, `df.write`, and what their tasks run."""
