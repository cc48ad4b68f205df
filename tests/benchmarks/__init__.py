"""What the benchmarks state: their rounds, their ratios, and when a figure may be published."""
