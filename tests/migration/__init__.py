"""A job that ran on Spark's own sink or source, before and after it was moved to this one."""
