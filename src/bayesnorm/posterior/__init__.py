"""Posteriors: distributions over part of a network's state, one file per kind."""

from .adapted import Adaptation as Adaptation, AdaptedPosterior as AdaptedPosterior, in_all_layers as in_all_layers
from .base import (
    Posterior as Posterior,
    derived_seeds as derived_seeds,
    effective_batch_size as effective_batch_size,
    restored_posterior as restored_posterior,
)
from .batchnorm import (
    BatchNormPosterior as BatchNormPosterior,
    Center as Center,
    coordinates as coordinates,
    running_coordinates as running_coordinates,
)
from .class_statistics import (
    ClassStatistics as ClassStatistics,
    class_probabilities as class_probabilities,
    collect_class_statistics as collect_class_statistics,
)
from .combined import CombinedPosterior as CombinedPosterior, combine as combine
from .deterministic import DeterministicPosterior as DeterministicPosterior, deterministic as deterministic
from .dropout import DropoutPosterior as DropoutPosterior, mask_seeds as mask_seeds
from .ensemble import EnsemblePosterior as EnsemblePosterior, shuffled_rounds as shuffled_rounds
from .flow_weights import FlowWeights as FlowWeights
from .fluctuations import (
    Empirical as Empirical,
    Fluctuations as Fluctuations,
    LowRankGaussian as LowRankGaussian,
)
from .group_weights import (
    GroupWeights as GroupWeights,
    HorseshoeWeights as HorseshoeWeights,
    NormalJeffreysWeights as NormalJeffreysWeights,
)
from .loading import load as load
from .training_batches import TrainingBatches as TrainingBatches
from .variational import VariationalPosterior as VariationalPosterior
from .weight_distributions import (
    GaussianWeights as GaussianWeights,
    WeightDistribution as WeightDistribution,
    WeightPrior as WeightPrior,
)
