"""An audit for people: one HTML page without scripts, with a picture of every partition."""

from __future__ import annotations

from html import escape
from typing import Any

_WIDTH, _HEIGHT = 720, 14
_STYLE = (
    "body{font:15px sans-serif;margin:2em;max-width:60em}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:left;"
    "border-bottom:1px solid #ddd}.bad{color:#b00020}.good{color:#1b7f3b}"
)


def page(report: dict[str, Any]) -> str:
    findings, explained = report["findings"], report["explained"]
    if findings:
        verdict = f'<p class="bad">{len(findings)} findings.</p>'
    else:
        verdict = '<p class="good">Every offset is accounted for.</p>'
    parts = "".join(_part(part, findings, explained) for part in report["partitions"])
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>Audit of {escape(report['topic'])}</title><style>{_STYLE}</style>"
        f"<h1>Audit of {escape(report['topic'])}</h1>{verdict}"
        "<h2>Partitions</h2><p>Green: in the archive. Yellow: explained. Red: a finding.</p>"
        f"{parts}{_table('Findings', findings)}{_table('Explained', explained)}</html>\n"
    )


def _part(
    part: dict[str, Any], findings: list[dict[str, Any]], explained: list[dict[str, Any]]
) -> str:
    number = part["partition"]
    end = max([part["journal_end"], 1, *(n["end"] for n in findings + explained)])
    bars = [_bar(part["log_start"], part["archive_end"], end, "#7fc493")]
    for notes, colour in ((explained, "#e8c252"), (findings, "#c8102e")):
        own = [note for note in notes if note["partition"] == number]
        bars += [_bar(note["first"], note["end"], end, colour) for note in own]
    words = (
        f"partition {number}: offsets {part['log_start']} to {part['archive_end']}, "
        f"{part['records']} records in {part['segments']} segments"
    )
    return (
        f"<p>{words}<br>"
        f'<svg role="img" aria-label="{words}" width="{_WIDTH}" height="{_HEIGHT}">'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#eee"/>{"".join(bars)}</svg></p>'
    )


def _bar(first: int, last: int, end: int, colour: str) -> str:
    left = _WIDTH * first / end
    width = max(1.5, _WIDTH * (last - first) / end) if last > first else 0
    return f'<rect x="{left:.1f}" width="{width:.1f}" height="{_HEIGHT}" fill="{colour}"/>'


def _table(title: str, notes: list[dict[str, Any]]) -> str:
    if not notes:
        return ""
    rows = "".join(
        f"<tr><td>{escape(n['kind'])}<td>{n['partition']}<td>{n['first']}<td>{n['end'] - 1}"
        f"<td>{escape(n['what'])}"
        for n in notes
    )
    head = "<tr><th>what<th>partition<th>first<th>last<th>more"
    return f"<h2>{title}</h2><table>{head}{rows}</table>"
