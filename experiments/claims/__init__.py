"""Claims of the papers and lectures that no table or figure shows, each with a small experiment and a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..evidence import show_progress, write_numbers
from ..known_names import require_known
from ..options import OUT, OutFolder
from ..pieces import measured_once
from . import (
    batch_norm_elbo,
    dropout_claims,
    exploration,
    jensen,
    learned_rates,
    noise_claims,
    regulariser,
    size_over_rows,
    sparse_priors,
)
from .claim import Claim as Claim, Verdict as Verdict

CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        batch_norm_elbo.UNBIASED,
        batch_norm_elbo.OPTIMUM,
        size_over_rows.CLAIM,
        jensen.BOUND,
        jensen.GRADIENT,
        jensen.RUNNING,
        dropout_claims.PRECISION,
        dropout_claims.BANDS,
        dropout_claims.LARGE_RATES,
        dropout_claims.LARGE_MODELS,
        noise_claims.EXAMPLE,
        noise_claims.ROBUST,
        noise_claims.WEIGHTS,
        noise_claims.SECOND_TASK,
        regulariser.GRADIENTS,
        regulariser.TRAINING,
        sparse_priors.CLAIM,
        exploration.CLAIM,
        learned_rates.CLAIM,
    )
}


def main(
    claim: Annotated[list[str] | None, typer.Option(help="Only this claim; may be repeated. [default: all]")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds: of data, networks and samples.")] = 5,
    out: OutFolder = OUT,
) -> None:
    """Test claims of the papers that no table or figure shows: a small experiment and a verdict for each.

    Every result is stored and not repeated. All claims with five seeds take about 30 minutes on one core.

    \b
    python -m experiments claims --out out
    python -m experiments claims --claim jensen-bound --seeds 2
    """
    require_known("--claim", claim or (), CLAIMS)
    results = {}
    for name in claim or CLAIMS:
        runs = [_numbers(CLAIMS[name], seed, out / "claims") for seed in range(seeds)]
        verdict = CLAIMS[name].judge(runs)
        show_progress("")
        print(f"{name}: {verdict.word}. {verdict.evidence}", flush=True)
        results[name] = runs
    write_numbers(out / "claims.json", {"seeds": seeds, "numbers": results})


def judged(results: dict[str, Any]) -> list[tuple[Claim, Verdict]]:
    """Return claims with their verdicts, from the content of a results file."""
    return [(CLAIMS[name], CLAIMS[name].judge(runs)) for name, runs in results["numbers"].items()]


def _numbers(claim: Claim, seed: int, folder: Path) -> dict[str, Any]:
    """Return the numbers of a seed; claims with the same measurement share a file."""
    measurement = f"{claim.measure.__module__.rpartition('.')[2]}_{claim.measure.__name__}"
    show_progress(f"{claim.name}, seed {seed}")
    numbers: dict[str, Any] = measured_once(
        folder / f"{measurement}_{seed}.json", {"measurement": measurement, "seed": seed}, lambda: claim.measure(seed)
    )
    return numbers
