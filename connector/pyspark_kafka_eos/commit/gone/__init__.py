"""What is known of a decided batch whose records, or whose topic, are not there any more.

Owns: what the ledger's notes still show of it; the words for it.
Does not know: how a log is read, what follows from a proof.
"""
