"""One HTML page that says whether a model can be trusted, and needs nothing but itself.

write_report(Report(...), "report.html")
"""

from . import drift_words as drift_words
from .classification import ClassificationScores as ClassificationScores, ClassificationTest as ClassificationTest
from .contents import (
    Choice as Choice,
    Column as Column,
    HeldOutRows as HeldOutRows,
    Provenance as Provenance,
    Report as Report,
    Table as Table,
    TriedSetting as TriedSetting,
)
from .drift_page import DriftReport as DriftReport, write_drift_report as write_drift_report
from .headlines import advice as advice, verdicts as verdicts
from .page import render as render, write_report as write_report
from .regression import RegressionScores as RegressionScores, RegressionTest as RegressionTest
from .verdict import Verdict as Verdict
