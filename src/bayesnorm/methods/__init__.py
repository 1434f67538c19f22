"""One file = one method; `fit(...)` returns a posterior."""

from .gaussian_bn import GaussianBN as GaussianBN
from .mcbn import MCBN as MCBN
from .stochastic_bn import StochasticBN as StochasticBN
