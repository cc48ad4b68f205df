"""The matrix of changes: what may be another one between two runs, two batches or two processes, in every moment of a
batch.

    .venv/bin/python -m tests.changes [--write] [--change NAME ...] [--sample N]

A cell is a change, a moment, a way of writing, a scope and a transaction version. It is played by the product's own
code of driver, tasks and source, on the embedded broker, beside a stand-in for Spark (`small_spark`) and an independent
reader (`world`).
"""
