"""Bayes by Backprop (Blundell, Cornebise, Kavukcuoglu and Wierstra, ICML 2015).

Every weight has its own Gaussian, which is learned by gradient descent on the evidence lower bound (ELBO):

    w = mu + softplus(rho) eps,  eps ~ N(0, 1);     loss = E_q[-log p(y | x, w)] + KL(q(w) || p(w)) / N.

The prior is a Gaussian, whose KL divergence has a closed form, or the paper's scale mixture of two Gaussians, whose KL
divergence is estimated. In training, weights are sampled by local reparameterisation (Kingma et al., 2015) or flipout
(Wen et al., 2018). Both have the same objective with less gradient noise. `estimator="weights"` samples as published.

`start="trained"` with `prior_center="trained"` is MOPED (Krishnan et al., 2020): mu starts at the trained weights,
sigma at `delta` times their magnitude, and the prior is centred on them.

Notes:
- Only weights and biases of linear and convolutional layers (and their subclasses) have a distribution. Batch norm and
  all other parameters are trained as points. Mukhoti et al. (2020) show that this is valid.
- The best independent Gaussian has the variance of a weight *given all others*. If the exact posterior is correlated, q
  is narrower than its marginals.
- With many weights per training example, the KL divergence dominates: weights that the data do not need return to the
  prior, and the mean prediction is smoother than the trained network's. A smaller `prior`, `start="trained"` or
  `kl_warmup` helps.
- sigma changes slowly, by about the learning rate per step in rho. With few steps it stays near its initial value.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..network import WeightTensor
from ..posterior import GaussianWeights
from .variational import VariationalMethod


@dataclass(frozen=True)
class BayesByBackprop(VariationalMethod):
    """Bayes by Backprop: learn an independent Gaussian for every linear and convolutional weight.

    It trains the network on the evidence lower bound, so it is not post hoc. `fit(model, train_data, likelihood)`
    returns a posterior over weights, which also has `kl` and `elbo`.

    Reference: Blundell et al., "Weight uncertainty in neural networks", ICML 2015.

    Args:
        epochs: Number of passes over the training data. Default: 100.
        batch_size: Examples per step. Default: None, the batch size of a `DataLoader`, or 32.
        learning_rate: Learning rate of Adam. Default: 0.001.
        schedule: "cosine" lowers the learning rate to zero along half a cosine, "constant" keeps it. Default: "cosine".
        prior: Prior of every weight: a standard deviation, or a scale mixture (pi, std1, std2). Default: 1.
        prior_center: Centre of the prior: "zero", or the "trained" weights. Default: "zero".
        estimator: How weights are sampled in training. "local": samples the outputs of linear layers, and works like
            "flipout" in convolutions and other layers that use a weight at many places. "flipout": one sample with
            random signs for every example. "weights": one sample for all examples, as published. Default: "local".
        start: Start from "fresh" weights, or from the "trained" weights. Default: "fresh".
        initial_std: Initial standard deviation of fresh weights. Default: 0.05.
        delta: Initial standard deviation of trained weights, relative to their magnitude. Default: 0.1.
        kl_warmup: Number of epochs in which the weight of the KL divergence rises to `kl_weight`. Default: 0.
        transform: Augmentation of every training batch's inputs, as in `training.train`. Default: None.
        compiled: Whether steps are compiled, or the mode, as in `training.train`. "graph" records a CUDA graph, which
            is the fastest mode for small networks. Default: False.
        mixed_precision: Whether to train in bfloat16 on GPUs that support it, as in `training.train`. It helps with
            large convolutions. Default: False.
        kl_weight: Weight of the KL divergence. Below 1 the data count more, as if there were more examples, and the
            epistemic uncertainty is smaller than the posterior's. Default: 1.
    """

    def distribution(self, tensor: WeightTensor, std: Tensor, center: Tensor | None) -> GaussianWeights:
        return GaussianWeights(tensor.parameter, std, tensor.axis, center)
