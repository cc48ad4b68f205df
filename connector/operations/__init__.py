"""What an operator sees and does: checks, what a pipeline left behind, its history, the audit of its output."""
