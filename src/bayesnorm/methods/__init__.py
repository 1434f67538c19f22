"""Methods: one file per method. `fit(...)` returns a posterior."""

from .batchnorm_method import BatchNormMethod as BatchNormMethod, Collected as Collected
from .bayes_by_backprop import BayesByBackprop as BayesByBackprop
from .deep_ensemble import DeepEnsemble as DeepEnsemble, ensemble as ensemble
from .gaussian_bn import GaussianBN as GaussianBN
from .group_horseshoe import GroupHorseshoe as GroupHorseshoe
from .group_normal_jeffreys import GroupNormalJeffreys as GroupNormalJeffreys
from .mc_dropout import MCDropout as MCDropout
from .mcbn import MCBN as MCBN
from .mnf import MNF as MNF
from .stochastic_bn import StochasticBN as StochasticBN
