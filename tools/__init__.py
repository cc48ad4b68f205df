"""Makes generated parts of the documents; not in the wheel."""
