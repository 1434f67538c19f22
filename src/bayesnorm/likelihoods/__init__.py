"""From network outputs to distributions of targets."""

from .base import Likelihood as Likelihood, likelihood_from as likelihood_from
from .categorical import Categorical as Categorical
from .gaussian import Gaussian as Gaussian
from .laplace import Laplace as Laplace
