"""HTML pages about a model, about new rows, and about uncertainty maps of images.

write_report(Report(...), "report.html")
write_report(DriftReport(...), "drift.html")
write_report(MapsReport(...), "maps.html")

Each page is one file, without links to other files.
"""

from .classification import ClassificationScores as ClassificationScores, ClassificationTest as ClassificationTest
from .contents import (
    Baseline as Baseline,
    Choice as Choice,
    Column as Column,
    ErrorShift as ErrorShift,
    HeldOutRows as HeldOutRows,
    Provenance as Provenance,
    Report as Report,
    RowReasons as RowReasons,
    Table as Table,
    TriedSetting as TriedSetting,
    UncertaintyReasons as UncertaintyReasons,
    cpu_name as cpu_name,
)
from .influence import (
    ColumnInfluence as ColumnInfluence,
    Influence as Influence,
    PartialDependence as PartialDependence,
)
from .next_steps import more_rows_words as more_rows_words
from .other_pages import (
    FEW_ROWS as FEW_ROWS,
    DriftReport as DriftReport,
    MappedImage as MappedImage,
    MapsReport as MapsReport,
    drift_summary as drift_summary,
    moved_words as moved_words,
    reason_words as reason_words,
)
from .page import (
    WITHOUT_PAGE as WITHOUT_PAGE,
    can_write_pages as can_write_pages,
    render as render,
    verdicts as verdicts,
    write_report as write_report,
)
from .page_plots import LearningCurve as LearningCurve
from .regression import RegressionScores as RegressionScores, RegressionTest as RegressionTest
from .verdict import Verdict as Verdict, advice as advice, leak_words as leak_words
