"""The commands of `ister` that talk to a broker: the same against Ister and Apache Kafka."""
