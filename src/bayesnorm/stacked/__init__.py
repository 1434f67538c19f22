"""Many small networks of one shape trained, and asked, as one: matrix products over a leading axis of networks."""

from .draws import (
    StackedDraws as StackedDraws,
    StackedMasks as StackedMasks,
    StackedStatistics as StackedStatistics,
)
from .history import Kept as Kept, StackedHistory as StackedHistory
from .moments import UnitMoments as UnitMoments, unit_moments as unit_moments
from .rows import Scales as Scales, StackedRows as StackedRows
from .stack import Stack as Stack
from .train import train_stacked as train_stacked
from .training_block import RowLoss as RowLoss, half_squared_error as half_squared_error
