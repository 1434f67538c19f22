"""Predictives: the distributions of new targets that a posterior and a likelihood give."""

from .base import Predictive as Predictive
from .classification import ClassificationPredictive as ClassificationPredictive
from .gaussian import GaussianPredictive as GaussianPredictive
from .multi_task import MultiTaskPredictive as MultiTaskPredictive
from .regression import RegressionPredictive as RegressionPredictive
