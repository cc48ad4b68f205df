"""The mistakes that a new user made by hand, made again by `format("kafka_eos")` on a real Spark: what each is told,
and when.
"""
