"""What several brokers have beyond one: where partitions are led, who is alive, what each broker knows of it.

Owns: the brokers' lives, elections, and a broker's picture of the cluster, which may be an old one.
Does not know: sockets, requests, what a log holds.
"""
