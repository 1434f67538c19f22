"""Bayes by Backprop (Blundell, Cornebise, Kavukcuoglu and Wierstra, ICML 2015).

Every weight has a Gaussian of its own, learned by gradient descent on the evidence lower bound:

    w = mu + softplus(rho) eps,  eps ~ N(0, 1);     loss = E_q[-log p(y | x, w)] + KL(q(w) || p(w)) / N.

The prior is a Gaussian, whose divergence is closed, or the paper's scale mixture of two, for which it is estimated.
Samples in training are those of local reparameterisation (Kingma et al. 2015) or flipout (Wen et al. 2018), which leave
the objective as it is and take noise out of its gradient; `estimator="weights"` is the paper's own.

`start="trained"` with `prior_center="trained"` is the way of MOPED (Krishnan et al. 2020): mu starts at the trained
weights, sigma at `delta` times their size, and the prior lies about them.

Gotchas:
- Only weights and biases of linear and convolutional layers (their subclasses too) have a distribution. Batch norm and
  all other parameters are trained along as points; that this is legitimate is shown by Mukhoti et al. (2020).
- The best independent Gaussians have the variance that a weight has *given all others*: where the exact posterior is
  correlated, q is narrower than its marginals.
- With many weights per row the divergence wins: weights that the data do not need go back to the prior, and the mean
  prediction is smoother than the trained network's. A smaller `prior`, `start="trained"` or `kl_warmup` helps.
- sigma moves slowly, by about the learning rate per step in rho: with few steps it stays near where it started.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..network import WeightTensor
from ..posterior import GaussianWeights
from .variational import VariationalMethod


@dataclass(frozen=True)
class BayesByBackprop(VariationalMethod):
    """Bayes by Backprop: an independent Gaussian over every linear and convolutional weight.

    Args:
        epochs: Passes over the training data.
        batch_size: Rows per step; None takes a `DataLoader`'s own, or 32.
        learning_rate: The step size of Adam.
        schedule: "cosine" lets the learning rate fall to zero along half a cosine; "constant" leaves it.
        prior: The prior of every weight: a standard deviation, or a scale mixture (pi, std1, std2).
        prior_center: What the prior lies about: "zero", or the "trained" weights.
        estimator: How weights are drawn in training. "local": outputs of linear layers, from their Gaussian (where a
            row meets weights at many places, as in convolutions, as "flipout"); "flipout": one draw with random signs
            for every row; "weights": one draw for all rows, as published.
        start: "fresh" weights, or the "trained" ones.
        initial_std: Standard deviation that fresh weights start with.
        delta: Standard deviation that trained weights start with, as a share of their size.
        kl_warmup: Epochs in which the divergence's weight rises to `kl_weight`.
        transform: What every batch's inputs go through in training, as in `training.train`: crops and mirror images.
        compiled: Whether steps are compiled, or the mode, as in `training.train`. "graph" records them on a GPU: for
            small networks by far the quickest.
        mixed_precision: Whether to train in bfloat16 where the network is on a GPU that has it, as in `training.train`:
            for large convolutions.
        kl_weight: What the divergence counts by. Below 1 the data say more, as if there were more rows, and uncertainty is
            less than that of a posterior.
    """

    def distribution(self, tensor: WeightTensor, std: Tensor, center: Tensor | None) -> GaussianWeights:
        return GaussianWeights(tensor.parameter, std, tensor.axis, center)
