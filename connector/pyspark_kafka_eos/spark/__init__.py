"""Spark's side: the streaming writer and source, and what an executor runs. The only importer of pyspark."""
