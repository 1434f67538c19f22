"""Likelihoods: they turn network outputs into distributions of targets."""

from .base import (
    Likelihood as Likelihood,
    likelihood_from as likelihood_from,
    require_likelihood as require_likelihood,
)
from .categorical import Categorical as Categorical
from .gaussian import Gaussian as Gaussian
from .heteroscedastic import (
    HeteroscedasticGaussian as HeteroscedasticGaussian,
    HeteroscedasticLaplace as HeteroscedasticLaplace,
    HeteroscedasticStudentT as HeteroscedasticStudentT,
)
from .laplace import Laplace as Laplace
from .learned import LearnedNoise as LearnedNoise
from .logit_noise import LogitNoise as LogitNoise
from .multi_task import MultiTask as MultiTask
from .student_t import StudentT as StudentT
from .variance_scaled_categorical import VarianceScaledCategorical as VarianceScaledCategorical
