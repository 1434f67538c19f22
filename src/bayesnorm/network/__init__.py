"""The only room that knows what is inside a network: its batch-norm layers, their statistics, its state."""

from .affine import State as State
from .batches import MiniBatches as MiniBatches, TrainData as TrainData, mini_batches as mini_batches
from .compiled import CompiledExecutable as CompiledExecutable
from .executable import Executable as Executable
from .layers import (
    BatchNormLayer as BatchNormLayer,
    LayerChoice as LayerChoice,
    choose_layers as choose_layers,
)
from .statistics import (
    BatchStatistics as BatchStatistics,
    Progress as Progress,
    collect_moments as collect_moments,
    collect_statistics as collect_statistics,
)
