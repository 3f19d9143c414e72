"""`ister doctor`: what is wrong with an address, a listener, a data directory, a bucket.

Each module has checks that yield findings; none of them raises for what it finds, and none
leaves anything behind. `network.py` asks a broker, `disk.py` looks at a data directory,
`bucket.py` at a bucket, `machine.py` at limits and ports.
"""
