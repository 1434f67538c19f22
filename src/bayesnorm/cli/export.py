"""`bayesnorm export`: a run or a network as a file that predicts with uncertainty without this package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from ..errors import BayesNormError
from ..words import format_count
from .ending import UsageError
from .networks import Model, PosteriorFile, Shape, Weights, load_posterior
from .options import Force, option
from .output_files import require_free
from .printing import note
from .run_folder import MODEL, read_runs, unchanged

# Random examples on which the file of a network is compared with it.
EXAMPLES = 33


def export(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="[RUN] FILE",
            help="Folder that `bayesnorm fit --out` created, and the ONNX file to write. No RUN with --model, or with "
            "--triton for an ONNX file that exists.",
        ),
    ],
    model: Model = None,
    weights: Weights = None,
    posterior: PosteriorFile = None,
    shape: Shape = None,
    level: Annotated[
        float, option("P", "Probability that the interval from lower to upper contains the target.")
    ] = 0.9,
    samples: Annotated[
        int | None, option("N", "Samples of a prediction; with --model.", "sigma points, which cost less", min=1)
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Let the file of a network test its inputs for drift and adapt to them.")
    ] = False,
    triton: Annotated[Path | None, option("DIR", "Also write a model repository for Triton into this folder.")] = None,
    force: Force = False,
) -> None:
    """Write a model as an ONNX file, which predicts without bayesnorm.

    The inputs of a table are its columns: numbers, strings for categories, and
    seconds since 1970 for dates. The outputs are those of `bayesnorm predict`,
    without reasons for unusual rows. The file is compared with the model before
    it is written, on random inputs.
    --watch adds what `bayesnorm_runtime` needs to test for drift and to adapt.
    --triton writes DIR/NAME/config.pbtxt and DIR/NAME/1/model.onnx, for Triton
    and KServe.

    \b
    Examples:
      bayesnorm export run model.onnx
      bayesnorm export --model package.module:make --weights w.safetensors
                       --posterior net.bayesnorm --shape 3,32,32 net.onnx
      bayesnorm export net.onnx --triton models
    """
    if not 0 < level < 1:
        raise UsageError(f"--level must be a number between 0 and 1, got {level:g}.")
    *runs, file = paths
    sources = len(runs) + (model is not None)
    if sources > 1 or (not sources and triton is None):
        raise UsageError(
            "Pass what to export: the folder of a run and a file, --model and a file, or --triton and an ONNX file "
            "that exists."
        )
    if file.suffix != ".onnx":
        raise BayesNormError(f"FILE: {file.name} must end with .onnx.")
    if sources:
        require_free(file, force)
    elif not file.is_file():
        raise BayesNormError(f"{file} does not exist. Export it first, from a run or with --model.")
    config = triton and triton / file.stem / "config.pbtxt"
    if config is not None and config.exists() and not force:
        raise BayesNormError(f"--triton: {config} exists already. Use --force to overwrite it, or another folder.")
    if watch and model is None:
        raise UsageError("--watch needs a network: pass --model. `bayesnorm drift` tests the rows of tables.")
    if runs:
        export_run(runs[0], file, level)
    elif model is not None:
        export_network(file, model, weights, posterior, shape, level, samples, watch)
    if triton is not None:
        from ..export import write_triton_repository

        note(f"Wrote {write_triton_repository(file, triton)} for Triton.")


def export_run(run: Path, file: Path, level: float) -> None:
    """Write the model of a run as an ONNX file."""
    runs = read_runs(run)
    if len(runs) > 1:
        raise BayesNormError(
            f"RUN: {run} has {len(runs)} targets. Export the run of one of them, such as {runs[0][0]}."
        )
    from ..tabular import export_table, load

    ((folder, facts),) = runs
    details = {"target": str(facts.get("target")), "task": facts["task"], "formats": facts["columns"]}
    result = export_table(load(unchanged(folder, facts, MODEL)), file, level=level, description=details)
    note(
        f"Wrote {file}: {result.size / 2**20:,.1f} MiB, {len(result.inputs)} inputs. Its predictions differ from the "
        f"model's by at most {result.largest_difference:.0e} standard deviations."
    )


def export_network(
    file: Path,
    model: str,
    weights: Path | None,
    posterior: Path | None,
    shape: str | None,
    level: float,
    samples: int | None,
    watch: bool,
) -> None:
    """Write a network with its posterior as an ONNX file; the arguments are those of the command."""
    from ..export import export as write

    loaded, sizes = load_posterior(model, weights, posterior, shape)
    generator = torch.Generator().manual_seed(0)
    example = torch.randn(EXAMPLES, *sizes, generator=generator).to(loaded.executable.dtype)
    written = write(loaded, file, example, samples=samples, level=level, watch=watch)
    note(
        f"Wrote {file}: {format_count(written.samples, 'forward pass', 'forward passes')} of what is sampled, outputs "
        f"{', '.join(written.outputs)}. They differ from the network's by at most {written.largest_difference:.1e}."
    )
