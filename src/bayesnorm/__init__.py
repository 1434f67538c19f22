"""bayesnorm: uncertainty for trained PyTorch networks with batch normalisation."""

import importlib
from typing import TYPE_CHECKING

from . import (
    active as active,
    calibration as calibration,
    compression as compression,
    engines as engines,
    errors as errors,
    likelihoods as likelihoods,
    methods as methods,
    metrics as metrics,
    posterior as posterior,
    predictive as predictive,
    shift as shift,
    theory as theory,
    training as training,
)
from .calibration import (
    calibrate as calibrate,
    ood_scores as ood_scores,
    select_batch_size as select_batch_size,
    suggest_layers as suggest_layers,
)
from .compression import compress as compress
from .engines import Delta as Delta, Engine as Engine, MonteCarlo as MonteCarlo, SigmaPoints as SigmaPoints
from .errors import BayesNormError as BayesNormError, BayesNormWarning as BayesNormWarning
from .export import as_module as as_module, export as export
from .likelihoods import (
    Categorical as Categorical,
    Gaussian as Gaussian,
    HeteroscedasticGaussian as HeteroscedasticGaussian,
    HeteroscedasticLaplace as HeteroscedasticLaplace,
    HeteroscedasticStudentT as HeteroscedasticStudentT,
    Laplace as Laplace,
    LearnedNoise as LearnedNoise,
    Likelihood as Likelihood,
    LogitNoise as LogitNoise,
    MultiTask as MultiTask,
    StudentT as StudentT,
    VarianceScaledCategorical as VarianceScaledCategorical,
)
from .methods import (
    MCBN as MCBN,
    MNF as MNF,
    BayesByBackprop as BayesByBackprop,
    DeepEnsemble as DeepEnsemble,
    GaussianBN as GaussianBN,
    GroupHorseshoe as GroupHorseshoe,
    GroupNormalJeffreys as GroupNormalJeffreys,
    MCDropout as MCDropout,
    StochasticBN as StochasticBN,
    ensemble as ensemble,
)
from .network import (
    add_dropout as add_dropout,
    joined_outputs as joined_outputs,
    with_noise_head as with_noise_head,
)
from .network_report import NetworkReport as NetworkReport, doctor as doctor
from .posterior import (
    Posterior as Posterior,
    combine as combine,
    deterministic as deterministic,
    load as load,
)
from .predictive import (
    ClassificationPredictive as ClassificationPredictive,
    MultiTaskPredictive as MultiTaskPredictive,
    Predictive as Predictive,
    RegressionPredictive as RegressionPredictive,
)
from .shift import adapt as adapt, adapted_network as adapted_network, drift as drift
from .theory import diagnose as diagnose

__version__ = "0.2.0"

if TYPE_CHECKING:
    from . import maps as maps, plots as plots, report as report, tabular as tabular
else:

    def __getattr__(name):
        """Import a package that needs an extra when it is used first, as in `bayesnorm.plots`."""
        if name not in ("maps", "plots", "report", "tabular"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module(f".{name}", __name__)
