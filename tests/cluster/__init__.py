"""Three brokers of Apache Kafka behind proxies, what happens to them, and who writes meanwhile: `make cluster`."""
