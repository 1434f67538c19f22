"""The table of claims that no table of a paper shows, from results/claims.json."""

from __future__ import annotations

import re

from benchmarks.markdown import table
from benchmarks.results_files import hardware, read
from experiments.claims import judged


def claims() -> str:
    """Return each claim with its rule, what was measured, and the verdict."""
    results = read("claims.json")
    if results is None:
        return ""
    rows = [
        [claim.source, claim.text, _spaced(verdict.evidence), verdict.word, f"`{claim.name}`"]
        for claim, verdict in judged(results)
    ]
    head = ["source", "claim", "our result", "verdict", "name"]
    rules = [f"- `{claim.name}` {_spaced(claim.rule)}." for claim, _ in judged(results)]
    return "\n\n".join(
        [
            f"Means over {results['seeds']} seeds ({hardware(results['machine'])}):",
            table(head, rows),
            "The rules of the verdicts, committed before the numbers:",
            "\n".join(rules),
        ]
    )


def _spaced(text: str) -> str:
    """Return text with a space before every per-cent sign."""
    return re.sub(r"(?<=\d)%", " %", text)
