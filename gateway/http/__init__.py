"""The HTTP side: probes, metrics, what the broker knows as JSON, and the console.

`listen.py` takes the port before anything heavy is loaded, `server.py` serves it. One
module per group of routes, each with `add(routes, core)`; `views_*.py` say what there is as
plain values, for the JSON and for the pages alike; `metrics_*.py` give metric families.
Everything that reads the broker's state runs on its thread and does no I/O.
"""
