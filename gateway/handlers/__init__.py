"""The APIs, one module each; `router.py` gathers them."""
