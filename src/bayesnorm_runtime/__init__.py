"""Run exported models that watch their inputs and adapt, with NumPy and ONNX Runtime only.

This package is outside of `bayesnorm`, because importing any part of that imports torch. The arithmetic of `drift` and
`adapt` is here, and `bayesnorm` uses it too.
"""

from .batch_reference import (
    NO_WIDTH as NO_WIDTH,
    PLAIN_UP_TO as PLAIN_UP_TO,
    BatchNormLayer as BatchNormLayer,
    BatchReference as BatchReference,
    gamma_shape as gamma_shape,
)
from .category_text import cell_label as cell_label, label as label
from .class_mix import (
    LEAST_GAIN as LEAST_GAIN,
    MIX_ERROR as MIX_ERROR,
    MOST_EXAMPLES as MOST_EXAMPLES,
    ClassMoments as ClassMoments,
    Layerwise as Layerwise,
    MixShift as MixShift,
    Targets as Targets,
    chosen_examples as chosen_examples,
    estimate_mix as estimate_mix,
    joined_shift as joined_shift,
    solve as solve,
)
from .comparing import (
    LEVEL as LEVEL,
    Comparison as Comparison,
    LayerDrift as LayerDrift,
    Shift as Shift,
    drift_test as drift_test,
    first_layer as first_layer,
    group_sizes as group_sizes,
    holm as holm,
)
from .date_text import (
    DAY_DIGITS as DAY_DIGITS,
    DAY_FIRST as DAY_FIRST,
    DIGIT_FORMATS as DIGIT_FORMATS,
    DIGITS as DIGITS,
    MILLISECONDS as MILLISECONDS,
    MONTH_DIGITS as MONTH_DIGITS,
    MONTH_FIRST as MONTH_FIRST,
    RANGES as RANGES,
    SECONDS as SECONDS,
    SERIAL as SERIAL,
    TIME as TIME,
    WAYS as WAYS,
    YEAR_FIRST as YEAR_FIRST,
    read_date as read_date,
)
from .drift_result import Drift as Drift
from .errors import (
    BayesNormError as BayesNormError,
    FileFormatError as FileFormatError,
    InputError as InputError,
    NotComparableError as NotComparableError,
    quoted as quoted,
    shortened as shortened,
)
from .expected_error import (
    NOT_ESTIMATED as NOT_ESTIMATED,
    ErrorEstimate as ErrorEstimate,
    ExpectedError as ExpectedError,
    Validation as Validation,
    chosen_probability as chosen_probability,
)
from .model_file import ARRAYS as ARRAYS, METADATA as METADATA
from .network import Network as Network
from .number_text import (
    CURRENCY as CURRENCY,
    DECIMALS as DECIMALS,
    LONGEST_NUMBER as LONGEST_NUMBER,
    PERCENT as PERCENT,
    read_number as read_number,
)
from .table import MISSING as MISSING, Table as Table, date_in_seconds as date_in_seconds
from .text import ShortRepr as ShortRepr, format_percent as format_percent
