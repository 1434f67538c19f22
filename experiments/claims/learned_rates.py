"""The claim of concrete dropout (Gal, Hron and Kendall 2017), which a paper cites: the rate follows the data."""

from __future__ import annotations

from collections.abc import Sequence

from bayesnorm.engines import MonteCarlo
from bayesnorm.likelihoods import Gaussian
from bayesnorm.methods import MCDropout
from bayesnorm.metrics import crps
from bayesnorm.training import learn_dropout_rates

from ..networks import paper_dropout_mlp
from .claim import FAILS, HOLDS, PARTLY, Claim, Numbers, Verdict, column, mean, significantly_above
from .toy import NOISE, friedman_rows

ROWS, NEW_ROWS, BATCH_SIZE, STEPS, START = (100, 400, 1_600), 2_000, 50, 4_000, 0.1


def measure(seed: int) -> Numbers:
    """Return the mean learned rate, the epistemic standard deviation and the CRPS on new rows, by training rows."""
    new, target, _ = friedman_rows(NEW_ROWS, seed + 2_000)
    likelihood = Gaussian(precision=1 / NOISE**2)
    results: Numbers = {}
    for rows in ROWS:
        x, y, _ = friedman_rows(rows, seed)
        network = paper_dropout_mlp(x.shape[1], START, seed=seed)
        epochs = STEPS * BATCH_SIZE // rows
        options = {"epochs": epochs, "batch_size": BATCH_SIZE, "learning_rate": 5e-3, "seed": seed}
        learn_dropout_rates(network, x, y, loss=likelihood.loss, **options)
        posterior = MCDropout().fit(network, x, likelihood)
        predictive = posterior.predict(new, MonteCarlo(64), seed=seed)
        results[str(rows)] = {
            "rate": sum(posterior.rates.values()) / len(posterior.rates),
            "epistemic": float(predictive.epistemic.mean().sqrt()),
            "crps": float(crps(predictive, target).mean()),
        }
    return results


def judge(runs: Sequence[Numbers]) -> Verdict:
    """Judge whether rates and epistemic uncertainty fall from the fewest rows to the most."""
    first, last = str(ROWS[0]), str(ROWS[-1])
    falls = [
        significantly_above([a - b for a, b in zip(column(runs, first, key), column(runs, last, key), strict=True)])
        for key in ("rate", "epistemic")
    ]
    shown = "; ".join(
        f"{rows} rows: mean rate {mean(runs, str(rows), 'rate'):.3f}, epistemic standard deviation "
        f"{mean(runs, str(rows), 'epistemic'):.3f}, CRPS {mean(runs, str(rows), 'crps'):.3f}"
        for rows in ROWS
    )
    return Verdict(HOLDS if all(falls) else PARTLY if any(falls) else FAILS, shown)


CLAIM = Claim(
    "learned-rates",
    "Gal et al. (2017)",
    "learned dropout rates fall with more data, and so does epistemic uncertainty",
    f"holds if the mean rate and the epistemic standard deviation are significantly lower with {ROWS[-1]:,} rows than "
    f"with {ROWS[0]} (t-tests over seeds, 5 %); partly if one is",
    measure,
    judge,
)
