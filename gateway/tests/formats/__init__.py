"""A small data directory and bucket of every released format, which every later version opens.

`N.tar.xz` holds `data/` (with its bucket) as a process left it that was killed; `N.json` says
what must be found there, and which formats it is written in. `make.py` wrote them; when a
format gets a new version it writes the next pair, and the older ones stay as they are.
"""
