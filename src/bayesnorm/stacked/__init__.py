"""Train and run many small networks of one shape together, as matrix products over an axis of networks.

`train_stacked` trains them, and `fit_stacked` fits a method on all of them. Their outputs, (samples, networks, rows,
outputs) in the targets' units, work with the same likelihoods, scores and calibration as those of one network.
"""

from .architecture import Skip as Skip
from .collecting import stacked_moments as stacked_moments, stacked_statistics as stacked_statistics
from .cores import in_threads as in_threads, one_thread as one_thread
from .executable import StackedExecutable as StackedExecutable
from .history import Kept as Kept, StackedHistory as StackedHistory
from .passes import stacked_outputs as stacked_outputs
from .posteriors import (
    StackedBatchNormPosterior as StackedBatchNormPosterior,
    StackedDropoutPosterior as StackedDropoutPosterior,
    StackedEnsemble as StackedEnsemble,
    StackedPoint as StackedPoint,
    by_own_rows as by_own_rows,
    fit_stacked as fit_stacked,
    learned_posterior as learned_posterior,
    stacked_point as stacked_point,
)
from .rows import Scales as Scales, StackedRows as StackedRows
from .stack import Stack as Stack
from .train import train_stacked as train_stacked
from .training_block import RowLoss as RowLoss, half_squared_error as half_squared_error
from .training_run import Evaluate as Evaluate
