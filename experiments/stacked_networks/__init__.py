"""What experiments add to `bayesnorm.tabular.stacked`: rows in original units, posteriors of a stack, GPU kernels."""

from .fused.fused_block import choose_block as choose_block
from .posteriors import (
    BatchNormSampler as BatchNormSampler,
    DropoutSampler as DropoutSampler,
    StackedSampler as StackedSampler,
    batchnorm_sampler as batchnorm_sampler,
    fit_stacked as fit_stacked,
    in_target_units as in_target_units,
    output_moments as output_moments,
)
from .rows import (
    first_rows as first_rows,
    network_means as network_means,
    own_targets as own_targets,
    standardised_rows as standardised_rows,
)
from .unit_moments import batch_statistics as batch_statistics, stacked_moments as stacked_moments
