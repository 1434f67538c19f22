"""bayesnorm: the batch-normalised network you already trained, made Bayesian."""

from .combined_posterior import combine as combine
from .engines import Delta as Delta, Engine as Engine, MonteCarlo as MonteCarlo, SigmaPoints as SigmaPoints
from .errors import BayesNormError as BayesNormError, BayesNormWarning as BayesNormWarning
from .likelihoods import (
    Categorical as Categorical,
    Gaussian as Gaussian,
    HeteroscedasticGaussian as HeteroscedasticGaussian,
    HeteroscedasticLaplace as HeteroscedasticLaplace,
    Laplace as Laplace,
    LearnedNoise as LearnedNoise,
    Likelihood as Likelihood,
    LogitNoise as LogitNoise,
    MultiTask as MultiTask,
    StudentT as StudentT,
)
from .methods import (
    MCBN as MCBN,
    MNF as MNF,
    BayesByBackprop as BayesByBackprop,
    DeepEnsemble as DeepEnsemble,
    GaussianBN as GaussianBN,
    MCDropout as MCDropout,
    StochasticBN as StochasticBN,
    ensemble as ensemble,
)
from .network import (
    add_dropout as add_dropout,
    joined_outputs as joined_outputs,
    with_noise_head as with_noise_head,
)
from .point_posterior import point as point
from .posterior import Posterior as Posterior, load as load
from .predictive import (
    ClassificationPredictive as ClassificationPredictive,
    MultiTaskPredictive as MultiTaskPredictive,
    Predictive as Predictive,
    RegressionPredictive as RegressionPredictive,
)
from .selection import (
    calibrate as calibrate,
    diagnose as diagnose,
    select_batch_size as select_batch_size,
    suggest_layers as suggest_layers,
)

__version__ = "0.1.0"
