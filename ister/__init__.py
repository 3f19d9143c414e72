"""Ister: a Kafka broker that you install with pip."""

__version__ = "0.1.0"
