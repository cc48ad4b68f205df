"""Topics: their partitions, leaders' epochs, settings and internal ones."""
