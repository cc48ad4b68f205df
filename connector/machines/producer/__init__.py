"""One transactional producer: its session, its sequence numbers, the turns of tasks that share it."""
