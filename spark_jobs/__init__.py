"""Scripts for spark-submit, the enrichment of flights, and the demo that kills it and proves its result. Not in the
wheel.

Owns: the flights, how they are transformed, the demo.
Does not know: how a job is run and configured (`pyspark_kafka_eos.jobs`).
"""
