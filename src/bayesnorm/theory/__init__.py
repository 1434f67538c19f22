"""The theory of batch statistics: Gaussians, priors, divergences, and tests of the theory on real batches."""

from .diagnose import diagnose as diagnose
from .diagnosis import (
    BatchSizeDiagnosis as BatchSizeDiagnosis,
    Dependence as Dependence,
    Diagnosis as Diagnosis,
    LayerDiagnosis as LayerDiagnosis,
)
from .normality import Normality as Normality
from .priors import (
    BatchNormKL as BatchNormKL,
    GaussianPrior as GaussianPrior,
    kl_divergence as kl_divergence,
    weight_decay_prior as weight_decay_prior,
)
from .unit_gaussians import (
    UnitGaussians as UnitGaussians,
    central_limit as central_limit,
    unit_gaussians as unit_gaussians,
)
