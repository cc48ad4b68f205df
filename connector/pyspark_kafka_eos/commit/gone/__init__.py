"""What is known of a decided batch whose records, or whose topic, are not there any more.

Owns: the words for it; whether a topic was recreated before the decision.
Does not know: how a log is read, what follows from a proof.
"""
