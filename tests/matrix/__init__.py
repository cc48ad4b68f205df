"""The versions that the product supports, together: Python x pyspark x Apache Kafka x classic or Spark Connect, each
pair in a run.
"""
