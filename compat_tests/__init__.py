"""Real clients over TCP, and the real tools that tests need."""
