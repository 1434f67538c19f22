"""The only room that knows what is inside a network: its batch-norm layers, their statistics, its state."""

from .collecting.batches import (
    MiniBatches as MiniBatches,
    TrainData as TrainData,
    batch_choices as batch_choices,
    isolated_torch_randomness as isolated_torch_randomness,
    mini_batches as mini_batches,
)
from .collecting.moments import (
    Moments as Moments,
    mean_and_var as mean_and_var,
    row_moments as row_moments,
)
from .collecting.statistics import (
    BatchStatistics as BatchStatistics,
    Progress as Progress,
    collect_moments as collect_moments,
    collect_statistics as collect_statistics,
)
from .copying import tensors_of as tensors_of
from .editing.inserting import add_dropout as add_dropout
from .editing.noise_head import joined_outputs as joined_outputs, with_noise_head as with_noise_head
from .layers import (
    BatchNormLayer as BatchNormLayer,
    LayerChoice as LayerChoice,
    choose_layers as choose_layers,
)
from .outputs import select_output as select_output
from .running.affine import State as State
from .running.compiled import CompiledExecutable as CompiledExecutable
from .running.dropout import (
    DropoutExecutable as DropoutExecutable,
    RateChoice as RateChoice,
    dropout_rates as dropout_rates,
    example_rows as example_rows,
)
from .running.executable import Executable as Executable
from .running.seeded_dropout import SEEDS as SEEDS
