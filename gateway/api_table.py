"""The table of APIs in README.md, made from what the handlers declare.

`python -m ister.gateway.api_table` writes it anew between the two marks; a test fails when it
is stale. Names are Kafka's, versions those that ApiVersions tells.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ister.gateway.router import APIS

BEGIN = "<!-- APIs: written by `python -m ister.gateway.api_table` -->"
END = "<!-- end of APIs -->"


def table() -> str:
    """One row per API, by its key."""
    lines = ["| key | API | versions |", "|---|---|---|"]
    for key, api in sorted(APIS.items()):
        name = "".join(word.capitalize() for word in api.key.name.split("_"))
        low, high = api.versions
        versions = str(high) if low == high else f"{low}-{high}"
        if api.advertised_from is not None:
            versions += f" (told as {api.advertised_from}-{high})"
        lines.append(f"| {key} | {name} | {versions} |")
    return "\n".join(lines)


def updated(text: str) -> str:
    """The document with the table of today in it."""
    before, _, rest = text.partition(BEGIN)
    _, mark, behind = rest.partition(END)
    if not mark:
        raise ValueError(f"the marks of the table are missing: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{behind}"


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "README.md")
    path.write_text(updated(path.read_text()))
