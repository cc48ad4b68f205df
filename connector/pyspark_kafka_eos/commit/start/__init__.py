"""The start of a run: whether it may go on, where a pipeline begins, what earlier runs left."""
