"""Claims about priors on batch statistics (Teye et al. 2018, appendix 1.4, equations 5 to 8).

Weight decay should have the gradient of KL(q || p) for a prior that is flat on means and N(0, 1 / (2 N tau lambda)) on
standard deviations. For any other Gaussian prior, the divergence itself is the regulariser (`BatchNormKL`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from bayesnorm.likelihoods import Gaussian
from bayesnorm.methods import MCBN
from bayesnorm.metrics import crps
from bayesnorm.theory import BatchNormKL, GaussianPrior, kl_divergence, unit_gaussians, weight_decay_prior
from bayesnorm.training import train

from ..networks import paper_mlp
from .claim import FAILS, HOLDS, PARTLY, Claim, Numbers, Verdict, column, mean, p_value
from .toy import NOISE, friedman_rows

ROWS, NEW_ROWS, BATCH_SIZE, EPOCHS = 512, 2_000, 32, 100
DECAYS = (1e-4, 1e-2)
"""lambda of the gradients that are compared; the paper needs a prior that is narrow enough, so a large one."""
LARGE = 1e6
"""The batch size M of q when gradients are compared; the paper lets M go to infinity."""
SAME_DIRECTION = 0.95
PRIOR = GaussianPrior(mean_loc=0.0, mean_std=1.0, std_loc=1.0, std_std=0.5)
PRECISION = 1 / NOISE**2


def measure_gradients(seed: int) -> Numbers:
    """Return how the gradients of the divergence and of weight decay compare, by lambda and layer."""
    x, y, _ = friedman_rows(ROWS, seed)
    network = _network(seed)
    train(network, x, y, loss=mse_loss, epochs=EPOCHS, batch_size=BATCH_SIZE, weight_decay=1e-4, seed=seed)
    network.train()
    weights = [layer.weight for layer in network if isinstance(layer, nn.Linear)][:-1]
    results: Numbers = {}
    for decay in DECAYS:
        with BatchNormKL(network, weight_decay_prior(ROWS, PRECISION, decay), LARGE) as divergence:
            network(x)
            units = kl_divergence(divergence.units(), divergence.prior).split([len(w) for w in weights])
        of_layers = [torch.autograd.grad(u.sum(), weights, retain_graph=True, allow_unused=True) for u in units]
        for i, weight in enumerate(weights):
            gradient = of_layers[i][i]
            assert gradient is not None
            expected = 2 * ROWS * PRECISION * decay * weight.detach()
            results[_at(decay, i)] = {
                "cosine": float((gradient * expected).sum() / gradient.norm() / expected.norm()),
                "size": float(gradient.norm() / expected.norm()),
            }
        through, direct = of_layers[1][0], of_layers[0][0]
        assert through is not None
        assert direct is not None
        results[_at(decay, 1)]["through the first layer"] = float(through.norm() / direct.norm())
    return results


def judge_gradients(runs: Sequence[Numbers]) -> Verdict:
    """Judge the directions of both layers' gradients for the narrowest prior."""
    cosines = [mean(runs, _at(DECAYS[-1], layer), "cosine") for layer in range(2)]
    same = [cosine >= SAME_DIRECTION for cosine in cosines]
    shown = "; ".join(
        f"lambda = {decay:g}: cosines {mean(runs, _at(decay, 0), 'cosine'):.3f} and "
        f"{mean(runs, _at(decay, 1), 'cosine'):.3f} (first and second layer), sizes "
        f"{mean(runs, _at(decay, 0), 'size'):.2f} and {mean(runs, _at(decay, 1), 'size'):.2f} times those of weight "
        "decay"
        for decay in DECAYS
    )
    through = mean(runs, _at(DECAYS[-1], 1), "through the first layer")
    return Verdict(
        HOLDS if all(same) else PARTLY if any(same) else FAILS,
        f"{shown}. The second layer's divergence also moves the first layer's weights, by {through:.1%} of its own "
        "gradient; the paper neglects this",
    )


def measure_training(seed: int) -> Numbers:
    """Return the negative ELBO per row, and scores on new rows, trained with weight decay and with the divergence."""
    x, y, _ = friedman_rows(ROWS, seed)
    new, target, _ = friedman_rows(NEW_ROWS, seed + 2_000)
    results: Numbers = {}
    for name, weight_decay in (("weight decay", 1e-4), ("divergence", 0.0)):
        network = _network(seed)
        with BatchNormKL(network, PRIOR, BATCH_SIZE) as divergence:

            def penalty(_network: nn.Module, _epoch: int, divergence: BatchNormKL = divergence) -> Tensor:
                return divergence() / (ROWS * PRECISION / 2)  # in units of the squared error

            train(
                *(network, x, y),
                loss=mse_loss,
                epochs=EPOCHS,
                batch_size=BATCH_SIZE,
                learning_rate=5e-3,
                weight_decay=weight_decay,
                penalties=[penalty] if name == "divergence" else [],
                seed=seed,
            )
        network.eval()
        q = unit_gaussians(network, (x, y), BATCH_SIZE)
        posterior = MCBN(BATCH_SIZE, states=256).fit(network, (x, y), Gaussian(precision=PRECISION))
        expected = posterior.predict(x, samples=128)
        spread = (expected.mean - y).square() + expected.epistemic  # the mean over samples of (y - f)^2
        likelihood = 0.5 * PRECISION * float(spread.mean())
        predictive = posterior.predict(new, samples=128)
        results[name] = {
            "negative ELBO": likelihood + float(kl_divergence(q, PRIOR).sum()) / ROWS,
            "divergence": float(kl_divergence(q, PRIOR).sum()) / ROWS,
            "rmse": float((predictive.mean - target).square().mean().sqrt()),
            "crps": float(crps(predictive, target).mean()),
        }
    return results


def judge_training(runs: Sequence[Numbers]) -> Verdict:
    """Judge the ELBO, which the divergence should improve, and the error on new rows, which it should not worsen."""
    better = [
        a - b
        for a, b in zip(
            column(runs, "weight decay", "negative ELBO"), column(runs, "divergence", "negative ELBO"), strict=True
        )
    ]
    worse = [
        b - a for a, b in zip(column(runs, "weight decay", "crps"), column(runs, "divergence", "crps"), strict=True)
    ]
    improves = sum(better) > 0 and p_value(better) <= 0.05
    harmless = not (sum(worse) > 0 and p_value(worse) <= 0.05)
    shown = ", ".join(
        f"{mean(runs, 'weight decay', key):.3f} with weight decay and {mean(runs, 'divergence', key):.3f} with the "
        f"divergence ({label})"
        for key, label in (
            ("negative ELBO", "negative ELBO in nats per row, up to a constant"),
            ("divergence", "the divergence in it"),
            ("rmse", "RMSE on new rows"),
            ("crps", "CRPS"),
        )
    )
    return Verdict(
        HOLDS if improves and harmless else PARTLY if improves else FAILS,
        f"{shown}; p = {p_value(better):.1g} for the ELBO, {p_value(worse):.1g} for the CRPS",
    )


def _at(decay: float, layer: int) -> str:
    return f"lambda = {decay:g}, layer {layer}"


def _network(seed: int) -> nn.Sequential:
    """Return the network of the MCBN paper without scale and shift, as its derivation assumes."""
    network = paper_mlp(8, seed=seed, eps=1e-5)
    for i, layer in enumerate(network):
        if isinstance(layer, nn.BatchNorm1d):
            network[i] = nn.BatchNorm1d(layer.num_features, eps=layer.eps, affine=False)
    return network


GRADIENTS = Claim(
    "weight-decay-prior",
    "Teye et al. (2018), equations 5 to 8",
    "the divergence from a prior on batch statistics has the gradient of weight decay",
    f"holds if the gradients of both layers have cosines of at least {SAME_DIRECTION} with those of weight decay, for "
    f"lambda = {DECAYS[-1]:g}; partly if those of one layer have",
    measure_gradients,
    judge_gradients,
)
TRAINING = Claim(
    "custom-regulariser",
    "Teye et al. (2018), appendix 1.4",
    "for another Gaussian prior, training with the divergence as the regulariser is variational inference",
    "holds if it improves the ELBO over weight decay (t-test over seeds, 5 %) without a significantly worse CRPS on "
    "new rows; partly if it improves the ELBO only",
    measure_training,
    judge_training,
)
