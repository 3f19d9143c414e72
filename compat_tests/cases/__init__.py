"""What clients do with a broker, by subject; every client and both brokers in turn."""
