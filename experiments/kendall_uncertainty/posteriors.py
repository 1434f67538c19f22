"""Make heteroscedastic networks and their posteriors."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from bayesnorm.calibration import calibrate
from bayesnorm.engines import MonteCarlo
from bayesnorm.likelihoods import HeteroscedasticGaussian
from bayesnorm.methods import MCBN, ensemble
from bayesnorm.plots import style
from bayesnorm.posterior import Posterior
from bayesnorm.predictive import RegressionPredictive

from ..cosine_training import train_steps
from ..networks import paper_mlp
from ..splits import Rows, Split, validated_split

BATCH_SIZE, STEPS, MEMBERS, DRAWS, MOST_ROWS = 32, 3000, 5, 100, 8000
SETS = ("power", "protein")
COLOURS = (style.BLUE, style.ORANGE, style.GREEN)
"""Colours of the three posteriors, or of the parts of the uncertainty."""


def posteriors(rows: Rows, validation: Rows, *, seed: int = 0, steps: int = STEPS) -> dict[str, Posterior]:
    """Return MCBN of one heteroscedastic network, the same at its calibrated batch size, and five networks."""
    likelihood = HeteroscedasticGaussian()
    train = partial(train_steps, loss=likelihood.loss, steps=steps, batch_size=BATCH_SIZE)

    def trained_network(seed: int) -> nn.Module:
        model = paper_mlp(rows[0].shape[1], 2, eps=1e-5, seed=seed)
        train(model, rows, validation=validation, seed=seed)
        # Noise that was trained with batch norm includes the variation of batches, so the head is trained again without
        # it.
        with torch.no_grad():
            features, held_out = ((model[:-1](x), y) for x, y in (rows, validation))
        train(model[-1], features, validation=held_out, seed=seed)
        return model

    networks = [trained_network(1000 * seed + number) for number in range(MEMBERS)]
    mcbn = MCBN(BATCH_SIZE, states=DRAWS).fit(networks[0], rows, likelihood)
    return {
        "MCBN": mcbn,
        "MCBN, M' chosen": calibrate(mcbn, *validation, noise=False, samples=DRAWS),
        f"{MEMBERS} networks": ensemble(networks, likelihood),
    }


def predict(posterior: Posterior, x: Tensor) -> RegressionPredictive:
    """Predict with `DRAWS` samples, or with every network of an ensemble."""
    samples = posterior.default_samples if posterior.default_samples < 64 else DRAWS
    predictive = posterior.predict(x, MonteCarlo(samples))
    assert isinstance(predictive, RegressionPredictive)
    return predictive


def standardised(name: str, seed: int, most: int = MOST_ROWS) -> Split:
    """Return a split of a set, with at most `most` training rows, standardised by their moments."""
    split = validated_split(name, seed + 1, most)
    (x_std, x_mean), (y_std, y_mean) = (torch.std_mean(part, dim=0, correction=0) for part in split.train)

    def standardise(rows: Rows) -> Rows:
        return (rows[0] - x_mean) / x_std.clamp_min(1e-6), (rows[1] - y_mean) / y_std

    return Split(standardise(split.train), standardise(split.validation), standardise(split.test), split.number)
