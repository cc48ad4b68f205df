"""What an operator sees and does: checks, a pipeline's leftovers, its history, the audit of its output."""
