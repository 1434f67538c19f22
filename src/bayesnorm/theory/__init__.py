"""The theory of batch statistics: Gaussians, priors, divergences, and tests of the theory on real batches."""

from .diagnose import diagnose as diagnose
from .diagnosis import (
    BatchSizeDiagnosis as BatchSizeDiagnosis,
    Dependence as Dependence,
    Diagnosis as Diagnosis,
    LayerDiagnosis as LayerDiagnosis,
    Normality as Normality,
)
from .gaussians import (
    BatchNormKL as BatchNormKL,
    GaussianPrior as GaussianPrior,
    UnitGaussians as UnitGaussians,
    central_limit as central_limit,
    kl_divergence as kl_divergence,
    unit_gaussians as unit_gaussians,
    weight_decay_prior as weight_decay_prior,
)
