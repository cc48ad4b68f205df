"""An embedded, single-node Kafka broker: the server side of the idempotent producer and of transactions.

Owns: sockets in, partition logs, the transaction and group coordinators, injected faults.
Does not know: the product's client (neither imports the other), Spark. One event loop runs everything, so
state needs no locks. Code that has to wait is a coroutine.
"""
