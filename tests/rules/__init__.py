"""Whether the tests that docs/rules.md and docs/design/findings.md name fail when the code breaks their rule: `make
rules`.

Owns: one breach of the code or more for each row of the table, and playing them.
Does not know: how a rule works.
Invariants: the tree itself is never changed, breaches are played in copies of it; a breach counts as caught only where
the body of a test of the row fails, not where the code cannot be imported, a broker does not start, or the time is
over.
"""
