"""Charts of the columns that cause the uncertainty: what they show, and that names cannot break them."""

import dataclasses
import re

import pytest

from bayesnorm.errors import InputError
from bayesnorm.report import Column, HeldOutRows, RowReasons, Table, UncertaintyReasons, render
from bayesnorm.report.uncertain_rows import reason_pictures

from .conftest import HOSTILE

ROWS = (
    RowReasons(4, 9.0, 1.0, (0.6, 0.3, -0.1), "age 60 %, town 30 %"),
    RowReasons(7, 4.0, 1.0, (0.05, 0.05, -0.001), ""),
)
FIRST = {"age": 0.75, HOSTILE: 0.25}


@pytest.fixture
def reasons(regression_report):
    return dataclasses.replace(regression_report, reasons=UncertaintyReasons(12, FIRST, ROWS))


def texts(picture):
    """The words of a picture, in their order."""
    matches = re.findall(r"<text[^>]*>([^<]*)</text>", picture.svg)
    return [text.strip().replace("&lt;", "<").replace("&gt;", ">") for text in matches]


def test_a_page_without_reasons_has_no_such_section(pages):
    for kind in ("regression", "classification"):
        assert 'id="why"' not in pages(kind)
        assert 'href="#why"' not in pages(kind)


def test_the_section_and_its_pictures(monkeypatch, reasons):
    monkeypatch.setattr("bayesnorm.report.page.pictures", lambda *_: ())  # those of other sections take long
    page = render(reasons)
    section = re.search(r'<section id="why".*?</section>', page, re.DOTALL)[0]
    assert '<a href="#why">' in page
    assert section.count("<svg") == 3
    assert re.findall(r"<h3>(.*?)</h3>", section) == [
        "The most frequent main cause is age", "Row 13: mainly age 60 %, town 30 %", "Row 22: no single column",
    ]  # fmt: skip
    assert "<script>" not in section
    assert "for the 12 rows where" in section
    assert "trained on these rows as well" not in section


def test_bars_of_a_row(reasons):
    age, _, town = reasons.rows.values[4]
    first = reason_pictures(reasons)[1]
    words = texts(first)
    # The typical row has what the positive contributions of the columns leave.
    assert {"a typical row", f"age: {age:.0f}", f"town: {town[:11]}{'…' if len(town) > 12 else town[11:]}"} <= set(
        words
    )
    assert [word for word in words if word.endswith(" %")] == ["10 %", "60 %", "30 %", "−10 %"]
    assert first.caption == "The epistemic standard deviation is 3; for a typical row, 1."


def test_a_share_that_is_next_to_none_is_none(reasons):
    assert [word for word in texts(reason_pictures(reasons)[2]) if word.endswith(" %")] == ["90 %", "5 %", "5 %", "0 %"]


def test_classes_have_mutual_information(classification_report):
    reasons = UncertaintyReasons(12, FIRST, ROWS)
    shown = reason_pictures(dataclasses.replace(classification_report, reasons=reasons))[1]
    assert shown.caption == "The mutual information is 9 nats; for a typical row, 1."


def test_the_most_common_reasons(regression_report):
    def overall(first):
        return reason_pictures(dataclasses.replace(regression_report, reasons=UncertaintyReasons(20, first, ())))[0]

    several = overall({"age": 0.45, "town": 0.35, HOSTILE: 0.2})
    assert several.title == "The most frequent main cause is age or town"
    assert [word for word in texts(several) if word.endswith(" %")] == ["45 %", "35 %", "20 %"]
    none = overall({})
    assert "no column" in texts(none)
    many = overall({f"c{i}": share for i, share in enumerate([0.3, 0.2, 0.15, 0.1, 0.1, 0.1, 0.05])})
    assert [word for word in texts(many) if word.endswith(" %")] == ["30 %", "20 %", "15 %", "10 %", "10 %", "15 %"]
    assert "other columns" in texts(many)


def test_of_many_columns_those_that_matter_are_drawn(make_report, make_regression):
    names = tuple(f"$column$ {i}" for i in range(9))
    shares = (0.01, -0.2, 0.02, 0.3, 0.03, 0.1, -0.01, 0.04, 0.0)
    test = make_regression(rows=10)
    report = make_report(
        test,
        table=Table(
            "f", 10, 10, 0, tuple(Column(name, "number", 0.0, 1.0, 2.0) for name in names), Column("y", "number")
        ),
        rows=HeldOutRows(names, [[1.5] * 9] * 10, list(range(10))),
        reasons=UncertaintyReasons(1, {}, (RowReasons(0, 2.0, 1.0, shares, ""),)),
    )
    words = texts(reason_pictures(report)[1])
    assert [word for word in words if word.endswith(" %")] == ["50 %", "30 %", "10 %", "4 %", "3 %", "−20 %", "2 %"]
    assert [word for word in words if word.startswith("$column")] == [f"$column$ {i}: 1.5" for i in (3, 5, 7, 4, 1)]


@pytest.mark.parametrize("wrong", [{"shares": (0.1,)}, {"row": 150}, {"row": -1}])
def test_reasons_of_other_rows_or_columns_are_refused(reasons, wrong):
    odd = dataclasses.replace(reasons.reasons, rows=(dataclasses.replace(ROWS[0], **wrong),))
    with pytest.raises(InputError, match="reasons must have 3 shares, one per column, for rows from 0 to 149"):
        dataclasses.replace(reasons, reasons=odd)
