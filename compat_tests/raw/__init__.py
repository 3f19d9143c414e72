"""A client that speaks every version of every API, in plain dictionaries.

Layouts come from kio's schemas, so neither end of a comparison is read by our own codec.
"""
