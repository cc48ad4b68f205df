"""Every format that outlives a process: one golden file of each, and what another version is told."""
