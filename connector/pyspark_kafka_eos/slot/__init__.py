"""What an executor runs: the rows of one task, written under the identity of its slot."""
