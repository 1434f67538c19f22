"""The choices that training left open, made on validation data; and priors for training itself."""

from .batch_size import (
    BatchSizeChoice as BatchSizeChoice,
    BatchSizeRow as BatchSizeRow,
    select_batch_size as select_batch_size,
)
from .batchnorm_kl import BatchNormKL as BatchNormKL
from .calibrate import calibrate as calibrate
from .diagnose import EpochDiagnoses as EpochDiagnoses, diagnose as diagnose, diagnose_each as diagnose_each
from .diagnosis import (
    BatchSizeDiagnosis as BatchSizeDiagnosis,
    Dependence as Dependence,
    Diagnosis as Diagnosis,
    LayerDiagnosis as LayerDiagnosis,
    Normality as Normality,
)
from .layers import LayerOption as LayerOption, LayerSuggestion as LayerSuggestion, suggest_layers as suggest_layers
from .priors import (
    GaussianPrior as GaussianPrior,
    kl_divergence as kl_divergence,
    weight_decay_prior as weight_decay_prior,
)
from .unit_gaussians import UnitGaussians as UnitGaussians, unit_gaussians as unit_gaussians
