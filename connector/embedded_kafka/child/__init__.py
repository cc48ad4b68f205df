"""A program started as a child process: its files, its port, and its end with whoever started it."""
