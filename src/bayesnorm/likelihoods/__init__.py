"""Likelihoods: they turn network outputs into distributions of targets."""

from .base import (
    LearnedNoise as LearnedNoise,
    Likelihood as Likelihood,
    likelihood_from as likelihood_from,
    require_likelihood as require_likelihood,
)
from .classes import Categorical as Categorical, ClassTargets as ClassTargets, with_zero as with_zero
from .constant_noise import Gaussian as Gaussian, Laplace as Laplace, StudentT as StudentT
from .heteroscedastic import (
    Heteroscedastic as Heteroscedastic,
    HeteroscedasticGaussian as HeteroscedasticGaussian,
    HeteroscedasticLaplace as HeteroscedasticLaplace,
    HeteroscedasticStudentT as HeteroscedasticStudentT,
)
from .logit_noise import LogitNoise as LogitNoise
from .multi_task import MultiTask as MultiTask
from .real_targets import RealTargets as RealTargets
from .scales import require_moderate as require_moderate
from .variance_scaled_categorical import (
    LARGEST_DISAGREEMENT as LARGEST_DISAGREEMENT,
    VarianceScaledCategorical as VarianceScaledCategorical,
    log_logit_variance as log_logit_variance,
    standardised_disagreement as standardised_disagreement,
)
