"""Choose what training leaves open: noise level, temperature, effective batch size and layers."""

from .batch_size import (
    BatchSizeChoice as BatchSizeChoice,
    BatchSizeRow as BatchSizeRow,
    select_batch_size as select_batch_size,
)
from .calibrate import calibrate as calibrate
from .held_out_scores import (
    HeldOutScores as HeldOutScores,
    Score as Score,
    minimise_on_log_scale as minimise_on_log_scale,
    significantly_better as significantly_better,
)
from .late_layers import (
    LayerOption as LayerOption,
    LayerSuggestion as LayerSuggestion,
    suggest_layers as suggest_layers,
)
from .sampled_outputs import SampledOutputs as SampledOutputs
from .unusual_inputs import OODScores as OODScores, ood_scores as ood_scores
