"""scikit-learn estimators for tables: Bayesian regression and classification with calibrated uncertainty."""

from ..errors import MissingExtraError

try:
    import pandas  # noqa: F401
    import sklearn  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        "bayesnorm.tabular needs scikit-learn and pandas. Run: pip install scikit-learn pandas"
    ) from error

from . import column_checks as column_checks, column_types as column_types, dates as dates
from .classifier import BayesNormClassifier as BayesNormClassifier
from .encoded_columns import CategoricalColumn as CategoricalColumn
from .explaining import UncertaintyExplanation as UncertaintyExplanation
from .exporting import ExportedTable as ExportedTable, export_table as export_table
from .intervals import FoldLevels as FoldLevels, OutOfFold as OutOfFold
from .joint_leaks import joint_leaks as joint_leaks
from .model_file import load as load
from .prediction_frame import prediction_frame as prediction_frame
from .preprocessing import Preprocessing as Preprocessing
from .regressor import BayesNormRegressor as BayesNormRegressor
from .search_results import EXPONENT as EXPONENT, NetworkSetting as NetworkSetting, Selection as Selection
from .table_drift import ColumnDrift as ColumnDrift, TableDrift as TableDrift
from .targets import LARGEST_TARGET as LARGEST_TARGET
