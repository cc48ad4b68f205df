"""The quickstart notebooks, run from top to bottom."""
