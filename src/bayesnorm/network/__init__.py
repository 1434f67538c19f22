"""Access the inside of networks: batch-norm layers, batch statistics and state.

Only this package depends on batch-norm internals, `functional_call`, `vmap` and hooks. Other packages import from this
module only, not from the files inside.

- `collecting/` computes the statistics of training batches.
- `running/` runs one network under many states at once.
- `editing/` makes modified copies of a network: with dropout, a noise head, sampled weights or fewer units.
"""

from ..progress import Progress as Progress
from .calling import (
    as_input as as_input,
    as_tensor as as_tensor,
    call_network as call_network,
    delayed_checks as delayed_checks,
    multiply_adds as multiply_adds,
    numbered as numbered,
    output_entries as output_entries,
    renamed_argument as renamed_argument,
    select_output as select_output,
)
from .collecting.batches import (
    MiniBatches as MiniBatches,
    TrainData as TrainData,
    batch_choices as batch_choices,
    example_rows as example_rows,
    mini_batches as mini_batches,
)
from .collecting.moments import (
    MomentRecorder as MomentRecorder,
    Moments as Moments,
    mean_and_var as mean_and_var,
    row_moments as row_moments,
)
from .collecting.moving import LayerTarget as LayerTarget, moved_statistics as moved_statistics
from .collecting.normalising import (
    RowStatistics as RowStatistics,
    no_moments as no_moments,
    single_input_statistics as single_input_statistics,
)
from .collecting.reading import (
    BatchReader as BatchReader,
    is_in_memory as is_in_memory,
    whole_data as whole_data,
)
from .collecting.statistics import (
    RECORDED_SIZES as RECORDED_SIZES,
    BatchStatistics as BatchStatistics,
    UnitMoments as UnitMoments,
    check_layers as check_layers,
    collect_moments as collect_moments,
    collect_statistics as collect_statistics,
)
from .copying import (
    changed_weights as changed_weights,
    device_of as device_of,
    dtype_of as dtype_of,
    own_copy as own_copy,
    require_finite_weights as require_finite_weights,
    reset_weights as reset_weights,
    tensors_of as tensors_of,
    unwrap as unwrap,
    weight_digests as weight_digests,
)
from .editing.inserting import (
    add_dropout as add_dropout,
    joined_outputs as joined_outputs,
    with_noise_head as with_noise_head,
)
from .editing.tracing import trace_units as trace_units
from .editing.units import (
    OUTPUTS as OUTPUTS,
    Removal as Removal,
    Units as Units,
    masked as masked,
    removed as removed,
    renewed_statistics as renewed_statistics,
    resized as resized,
)
from .editing.variational import (
    Estimator as Estimator,
    NoisyNetwork as NoisyNetwork,
    RandomWeights as RandomWeights,
    WeightTensor as WeightTensor,
    weight_tensors as weight_tensors,
)
from .gpu_graphs import capture_graph as capture_graph
from .graphs.choosing import sampled_module as sampled_module
from .graphs.tracing import exported as exported
from .graphs.watching import CONTROLS as CONTROLS, watching_module as watching_module
from .inputs import InputForm as InputForm
from .layers import (
    BatchNormLayer as BatchNormLayer,
    LayerChoice as LayerChoice,
    RateChoice as RateChoice,
    choose_layers as choose_layers,
    dropout_rates as dropout_rates,
    find_batchnorm as find_batchnorm,
    find_dropout as find_dropout,
    require_python as require_python,
    without_frozen as without_frozen,
)
from .restoring import (
    isolated_randomness as isolated_randomness,
    isolated_torch_randomness as isolated_torch_randomness,
    restore_state as restore_state,
    seeded_generators as seeded_generators,
)
from .running.affine import State as State
from .running.compiled import CompiledExecutable as CompiledExecutable
from .running.dropout import DropoutExecutable as DropoutExecutable
from .running.executable import Executable as Executable
from .running.private_network import derivative_errors_explained as derivative_errors_explained
from .running.seeded_dropout import SEEDS as SEEDS, seed_dropout as seed_dropout
from .several import (
    Inputs as Inputs,
    equal_rows as equal_rows,
    forward_arguments as forward_arguments,
    joined_rows as joined_rows,
    run_forward as run_forward,
)
