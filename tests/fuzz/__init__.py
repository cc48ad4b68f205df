"""Bytes and texts from anybody, made at random from ones that are right: whoever reads them has an answer of its own,
or an error of this package, within a second and within its memory.

`play` runs the cases of `TARGETS`, each in a process that is watched; `python -m tests.fuzz` is its command. A case
depends on its target, the seed and its number alone. What was found once is in kept/ and is played by every run.
"""
