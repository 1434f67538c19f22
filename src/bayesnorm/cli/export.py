"""`bayesnorm export`: write the model of a run as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import BayesNormError
from .ending import UsageError
from .options import Force, RunFolder, option
from .output_files import require_free
from .printing import note
from .run_folder import MODEL, read_runs, unchanged


def export(
    run: RunFolder,
    out: Annotated[Path, typer.Argument(help="ONNX file to write.")],
    level: Annotated[
        float, option("P", "Probability that the interval from lower to upper contains the target.")
    ] = 0.9,
    force: Force = False,
) -> None:
    """Write the model of a run as an ONNX file, which predicts without bayesnorm.

    The inputs are the columns: numbers, strings for categories, and seconds
    since 1970 for dates. The outputs are those of `bayesnorm predict`, without
    reasons for unusual rows. The file is compared with the model before it is
    written.

    \b
    Example:
      bayesnorm export run model.onnx
    """
    if not 0 < level < 1:
        raise UsageError(f"--level must be a number between 0 and 1, got {level:g}.")
    runs = read_runs(run)
    if len(runs) > 1:
        raise BayesNormError(
            f"RUN: {run} has {len(runs)} targets. Export the run of one of them, such as {runs[0][0]}."
        )
    if out.suffix != ".onnx":
        raise BayesNormError(f"OUT: {out.name} must end with .onnx.")
    require_free(out, force)
    from ..tabular import export_table, load

    ((folder, facts),) = runs
    details = {"target": str(facts.get("target")), "task": facts["task"], "formats": facts["columns"]}
    result = export_table(load(unchanged(folder, facts, MODEL)), out, level=level, description=details)
    note(
        f"Wrote {out}: {result.size / 2**20:,.1f} MiB, {len(result.inputs)} inputs. Its predictions differ from the "
        f"model's by at most {result.largest_difference:.0e} standard deviations."
    )
