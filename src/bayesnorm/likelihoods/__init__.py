"""Likelihoods: they turn network outputs into distributions of targets."""

from .base import (
    LearnedNoise as LearnedNoise,
    Likelihood as Likelihood,
    likelihood_from as likelihood_from,
    require_likelihood as require_likelihood,
)
from .classes import (
    LARGEST_DISAGREEMENT as LARGEST_DISAGREEMENT,
    Categorical as Categorical,
    ClassTargets as ClassTargets,
    VarianceScaledCategorical as VarianceScaledCategorical,
    log_logit_variance as log_logit_variance,
    standardised_disagreement as standardised_disagreement,
    with_zero as with_zero,
)
from .heteroscedastic import (
    Heteroscedastic as Heteroscedastic,
    HeteroscedasticGaussian as HeteroscedasticGaussian,
    HeteroscedasticLaplace as HeteroscedasticLaplace,
    HeteroscedasticStudentT as HeteroscedasticStudentT,
    LogitNoise as LogitNoise,
)
from .multi_task import MultiTask as MultiTask
from .real_targets import Gaussian as Gaussian, Laplace as Laplace, RealTargets as RealTargets, StudentT as StudentT
from .scales import require_moderate as require_moderate
