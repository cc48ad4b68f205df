"""Every API of the embedded broker asked by clients with every kind of right, beside Apache Kafka's authorizer."""
