"""Predictives: the distributions of targets that a posterior and a likelihood give for new inputs."""

from .base import (
    P_co as P_co,
    Predictive as Predictive,
    Summary as Summary,
    as_targets as as_targets,
    at_least_single as at_least_single,
    largest_number as largest_number,
    mixture_log as mixture_log,
    number_tensor as number_tensor,
    weighted_mean as weighted_mean,
    zero_if_missing as zero_if_missing,
)
from .classification import ClassificationPredictive as ClassificationPredictive
from .multi_task import MultiTaskPredictive as MultiTaskPredictive
from .noise import (
    LEAST_DF as LEAST_DF,
    LaplaceNoise as LaplaceNoise,
    NoiseFamily as NoiseFamily,
    NormalNoise as NormalNoise,
    StudentTNoise as StudentTNoise,
)
from .regression import (
    RegressionPredictive as RegressionPredictive,
    gaussian_crps as gaussian_crps,
    like_mean as like_mean,
    observed_targets as observed_targets,
    require_level as require_level,
)
from .summaries import (
    ClassificationSummary as ClassificationSummary,
    GaussianPredictive as GaussianPredictive,
    RegressionSummary as RegressionSummary,
    RunningSummary as RunningSummary,
    joined as joined,
    map_tensors as map_tensors,
    stored_bytes as stored_bytes,
    summarised as summarised,
)
