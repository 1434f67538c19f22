"""Print tables and what they come to."""

from __future__ import annotations

import argparse
from pathlib import Path

from bayesnorm.errors import BayesNormError

from . import TABLES, render, verdicts
from .rows import ROWS, read_rows


def main() -> None:
    """Print the tables that are asked for, or all of them and the verdicts."""
    known = "\n".join(f"  {number:>2}  {text}" for number, text in TABLES.items())
    parser = argparse.ArgumentParser(
        prog="python -m bayesnorm.experiments.teye_tables",
        description=f"Tables of the MCBN paper, with our results beside its own:\n{known}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tables", type=int, nargs="*", help="numbers (default: all, and what they come to)")
    parser.add_argument("--rows", type=Path, default=ROWS, help=f"results (default: {ROWS})")
    options = parser.parse_args()
    try:
        shown = [render(table, rows_path=options.rows) for table in options.tables or TABLES]
        if not options.tables:
            shown.append(verdicts(read_rows(options.rows)))
    except BayesNormError as error:
        parser.error(str(error))
    print("\n\n".join(shown))


if __name__ == "__main__":
    main()
