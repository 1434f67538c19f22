"""HTML pages about a model, about new rows, and about uncertainty maps of images.

write_report(Report(...), "report.html")
write_report(DriftReport(...), "drift.html")
write_report(MapsReport(...), "maps.html")

Each page is one file, without links to other files.
"""

from . import drift_page as drift_page
from .advice import (
    advice as advice,
    leak_words as leak_words,
    more_rows_words as more_rows_words,
    verdicts as verdicts,
)
from .classification import ClassificationScores as ClassificationScores, ClassificationTest as ClassificationTest
from .contents import (
    Choice as Choice,
    Column as Column,
    HeldOutRows as HeldOutRows,
    Provenance as Provenance,
    Report as Report,
    RowReasons as RowReasons,
    Table as Table,
    TriedSetting as TriedSetting,
    UncertaintyReasons as UncertaintyReasons,
    cpu_name as cpu_name,
)
from .drift_page import DriftReport as DriftReport
from .learning_curve import LearningCurve as LearningCurve
from .maps_page import MappedImage as MappedImage, MapsReport as MapsReport
from .page import (
    WITHOUT_PAGE as WITHOUT_PAGE,
    can_write_pages as can_write_pages,
    render as render,
    write_report as write_report,
)
from .regression import RegressionScores as RegressionScores, RegressionTest as RegressionTest
from .verdict import Verdict as Verdict
