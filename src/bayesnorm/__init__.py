"""bayesnorm: the batch-normalised network you already trained, made Bayesian."""

from .engines import Delta as Delta, Engine as Engine, MonteCarlo as MonteCarlo, SigmaPoints as SigmaPoints
from .errors import BayesNormError as BayesNormError, BayesNormWarning as BayesNormWarning
from .likelihoods import Categorical as Categorical, Gaussian as Gaussian, Likelihood as Likelihood
from .methods import MCBN as MCBN, GaussianBN as GaussianBN, StochasticBN as StochasticBN
from .posterior import Posterior as Posterior, load as load
from .predictive import (
    ClassificationPredictive as ClassificationPredictive,
    Predictive as Predictive,
    RegressionPredictive as RegressionPredictive,
)
from .selection import calibrate as calibrate, suggest_layers as suggest_layers

__version__ = "0.1.0"
