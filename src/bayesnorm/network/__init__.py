"""The only room that knows what is inside a network: its batch-norm layers, their statistics, its state."""

from .affine import State as State
from .batches import (
    MiniBatches as MiniBatches,
    TrainData as TrainData,
    isolated_torch_randomness as isolated_torch_randomness,
    mini_batches as mini_batches,
)
from .compiled import CompiledExecutable as CompiledExecutable
from .copying import tensors_of as tensors_of
from .dropout import (
    DropoutExecutable as DropoutExecutable,
    RateChoice as RateChoice,
    dropout_rates as dropout_rates,
    example_rows as example_rows,
)
from .executable import Executable as Executable
from .inserting import add_dropout as add_dropout
from .layers import (
    BatchNormLayer as BatchNormLayer,
    LayerChoice as LayerChoice,
    choose_layers as choose_layers,
)
from .noise_head import joined_outputs as joined_outputs, with_noise_head as with_noise_head
from .outputs import select_output as select_output
from .seeded_dropout import SEEDS as SEEDS
from .statistics import (
    BatchStatistics as BatchStatistics,
    Progress as Progress,
    collect_moments as collect_moments,
    collect_statistics as collect_statistics,
)
