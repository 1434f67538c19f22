"""Predictives: the distributions of targets that a posterior and a likelihood give for new inputs."""

from .base import Predictive as Predictive, Summary as Summary, weighted_mean as weighted_mean
from .classification import ClassificationPredictive as ClassificationPredictive
from .gaussian import GaussianPredictive as GaussianPredictive
from .multi_task import MultiTaskPredictive as MultiTaskPredictive
from .regression import (
    RegressionPredictive as RegressionPredictive,
    gaussian_crps as gaussian_crps,
    require_level as require_level,
)
from .summaries import (
    ClassificationSummary as ClassificationSummary,
    RegressionSummary as RegressionSummary,
    RunningSummary as RunningSummary,
    map_tensors as map_tensors,
    summarised as summarised,
)
