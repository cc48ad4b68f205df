"""The schemas of Kafka's messages that kafka-python does not have."""
