"""An hour of small batches with faults: nothing may grow, and every row is there once in the end."""
