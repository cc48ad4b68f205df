"""Foreign clients and raw requests on the embedded broker and on Apache Kafka, one table of what each does: `make
parity`.
"""
