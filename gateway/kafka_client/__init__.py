"""A small Kafka client for our own commands: blocking, on the codec of the broker.

`connection.py` is one socket, `cluster.py` knows which broker to ask, `data.py` speaks
Produce and Fetch, `batches.py` builds what is sent. It is no library for applications:
no groups, no retries, no background.
"""
