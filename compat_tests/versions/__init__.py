"""Every version of every API that is advertised, played to both brokers."""
