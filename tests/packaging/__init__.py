"""What is handed out: the wheel, the source distribution, and both in environments that are not this repository's."""
