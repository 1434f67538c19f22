"""Train and run many small networks of one shape together, as matrix products over an axis of networks.

`train_stacked` trains them, `StackedExecutable` runs them under sampled states, and `stacked_statistics` collects the
statistics that methods over batch norm are fitted to. Outputs are (samples, networks, rows, outputs).
"""

from .architecture import Dense as Dense, Drop as Drop, Layer as Layer, Norm as Norm, ReLU as ReLU, Skip as Skip
from .graphed_block import GraphedBlock as GraphedBlock
from .history import SelectedNetworks as SelectedNetworks, StackedHistory as StackedHistory
from .passes import (
    StackedExecutable as StackedExecutable,
    as_batch_statistics as as_batch_statistics,
    batch_rows as batch_rows,
    dropout_masks as dropout_masks,
    normalised as normalised,
    run_blocks as run_blocks,
    run_layers as run_layers,
    stacked_outputs as stacked_outputs,
    stacked_statistics as stacked_statistics,
    without_dropout as without_dropout,
)
from .stack import Bundle as Bundle, Scales as Scales, Stack as Stack, StackedRows as StackedRows
from .threads import in_threads as in_threads, one_thread as one_thread
from .trained_layers import (
    ClassNLL as ClassNLL,
    HalfSquaredError as HalfSquaredError,
    NormalCrps as NormalCrps,
    RowLoss as RowLoss,
)
from .training_block import Block as Block, TrainingSettings as TrainingSettings, TrainingState as TrainingState
from .training_run import Evaluate as Evaluate, fastest_block as fastest_block, train_stacked as train_stacked
