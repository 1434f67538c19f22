"""The report about a network: its lines, as text and as HTML."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass
from typing import Any, Literal

from ..words import ShortRepr

Grade = Literal["good", "note", "problem"]
SYMBOLS = {"good": "+", "note": "!", "problem": "x"}
# Characters in a line, and lines of a finding.
WIDTH, LINES = 100, 5


@dataclass(frozen=True)
class Finding:
    """One line of a report.

    Args:
        subject: What was examined.
        text: The result, or why there is none.
        grade: "good"; "note" for something to know; "problem" for something that does not work.
    """

    subject: str
    text: str
    grade: Grade = "good"


@dataclass(frozen=True, repr=False)
class NetworkReport(ShortRepr):
    """What works with a network and its data, and what is recommended; `print` shows it on one screen.

    Args:
        network: The network's class.
        findings: What was examined, in order.
        recommendations: What to do, in order.
    """

    repr_names = ("network", "findings")

    network: str
    findings: tuple[Finding, ...]
    recommendations: tuple[str, ...]

    def __str__(self) -> str:
        width = max(len(finding.subject) for finding in self.findings)
        lines = []
        for finding in self.findings:
            start = f"{SYMBOLS[finding.grade]} {finding.subject:{width}}  "
            text = textwrap.shorten(finding.text, LINES * (WIDTH - len(start)), placeholder=" ...")
            lines += textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start))
        lines += ["", "Recommended:"]
        for recommendation in self.recommendations:
            lines += textwrap.wrap(recommendation, WIDTH, initial_indent="- ", subsequent_indent="  ")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        findings = [vars(finding) for finding in self.findings]
        return {"network": self.network, "findings": findings, "recommendations": list(self.recommendations)}

    def to_html(self) -> str:
        """Return the report as a page of HTML, without links to other files."""
        rows = "".join(
            f'<tr class="{finding.grade}"><td>{SYMBOLS[finding.grade]}</td><th>{html.escape(finding.subject)}</th>'
            f"<td>{html.escape(finding.text)}</td></tr>\n"
            for finding in self.findings
        )
        advice = "".join(f"<li>{html.escape(text)}</li>\n" for text in self.recommendations)
        name = html.escape(self.network)
        style = (
            "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}th{text-align:left;"
            "white-space:nowrap}td,th{padding:.2em .8em;vertical-align:top}.problem{color:#a00}.note{color:#850}"
            "@media(max-width:40em){tr,td+th+td{display:block}td,th{display:inline}body{overflow-wrap:anywhere}}"
        )
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            f"<title>{name}</title><style>{style}</style></head>\n<body><h1>{name}</h1>\n<table>\n{rows}</table>\n"
            f"<h2>Recommended</h2>\n<ul>\n{advice}</ul>\n"
            "</body></html>\n"
        )
