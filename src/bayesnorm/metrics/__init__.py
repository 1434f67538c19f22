"""Scores of predictions and their uncertainty: functions of a predictive and its targets, in the targets' units.

`crps(predictive, y)` and the other scores return one number for all points, a tensor without axes. `crps_points`,
`pll_points` and `pit` return one number per point.
"""

from .bounds import (
    constant_uncertainty as constant_uncertainty,
    constant_variance as constant_variance,
    normalised_crps as normalised_crps,
    normalised_pll as normalised_pll,
    optimal_crps as optimal_crps,
    optimal_pll as optimal_pll,
)
from .checks import (
    check_finite_means as check_finite_means,
    check_regression as check_regression,
    classification_targets as classification_targets,
    finite_std as finite_std,
    mean_over_points as mean_over_points,
    number_vector as number_vector,
    real_tensor as real_tensor,
    regression_targets as regression_targets,
    scored_labels as scored_labels,
    wide as wide,
)
from .classification import (
    ReliabilityCurve as ReliabilityCurve,
    accuracy as accuracy,
    brier as brier,
    confidence_curve as confidence_curve,
    ece as ece,
    mean_iou as mean_iou,
    nll as nll,
    reliability_curve as reliability_curve,
)
from .regression import (
    VARIANCE_FLOOR as VARIANCE_FLOOR,
    coverage as coverage,
    crps as crps,
    crps_points as crps_points,
    gaussian_pll as gaussian_pll,
    mae as mae,
    pit as pit,
    pll as pll,
    pll_points as pll_points,
    quantile_calibration_error as quantile_calibration_error,
    quantile_coverage as quantile_coverage,
    rmse as rmse,
    sharpness as sharpness,
    width as width,
)
from .stateful import torchmetric as torchmetric
from .uncertainty_scores import (
    EntropyCDF as EntropyCDF,
    RetentionCurve as RetentionCurve,
    aupr as aupr,
    aurc as aurc,
    auroc as auroc,
    entropy_cdf as entropy_cdf,
    fpr95 as fpr95,
    prediction_rejection_ratio as prediction_rejection_ratio,
    retention_curve as retention_curve,
    spearman as spearman,
)
