"""Delivery: cursors, parked reads, and what wakes them."""
