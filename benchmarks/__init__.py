"""What the connector's speed is, beside what users have today. Run it with `make bench`.

`python -m benchmarks` throughput; `.commit_latency` the driver's commit; `.memory` peak memory of the Python processes;
`.records_micro` the codec alone.
"""
