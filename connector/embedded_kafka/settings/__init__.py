"""The broker's settings: Kafka's names, their types and where a value comes from."""
