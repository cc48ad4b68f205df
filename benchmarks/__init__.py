"""The connector's speed beside that of the existing alternatives. Run it with `make bench`.

`python -m benchmarks` throughput; `.commit_latency` the driver's commit; `.memory` peak memory of the Python processes;
`.records_micro` the codec alone; `.latency` from end to end; `.scale` many tasks, `.many` many pipelines and many
queries.
"""
