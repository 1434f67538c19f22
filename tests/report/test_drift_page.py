"""The page about new rows: its words, and many columns."""

import dataclasses

import pytest

pytest.importorskip("jinja2", reason="needs jinja2: pip install jinja2")
pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")

from bayesnorm.report import other_pages as words, render


def test_every_moved_column_has_a_picture_and_the_network_one(pages):
    assert pages("drift").count("<figure>") == 4


def test_many_columns(undrawn, drift_report):
    drift = drift_report.drift
    many = dataclasses.replace(drift, columns=drift.columns[:1] * (words.MOST_PICTURES + 1), network=None)
    page = render(dataclasses.replace(drift_report, drift=many))
    assert page.count("<figure>") == words.MOST_PICTURES
    assert f"the {words.MOST_PICTURES} clearest of {words.MOST_PICTURES + 1} changed columns" in page
    assert "Only the columns were compared" in page


def test_words(drift_report):
    drift = drift_report.drift
    assert words.drift_headline(drift) == "These 60 rows differ from the training rows."
    number, category, gaps = (words.column_words(column) for column in drift.columns[:3])
    assert number == "median 50 in training, 90 now (+2 times the spread in training); spread 1.1 times as large"
    assert category == "Bonn: 60 % in training, 10 % now; <b>: 40 % in training, 90 % now"
    assert gaps == "missing in 0 % of training rows, 50 % now"
    assert words.error_words(drift).startswith("The error on these rows is not estimated: ")
    calm = dataclasses.replace(drift, p_value=0.3, columns=())
    assert words.drift_headline(calm) == "These 60 rows do not differ significantly from the training rows."
    odd = dataclasses.replace(calm, rows=1, unusual=1.0)
    assert words.drift_headline(odd) == "This row is unusual compared with the training rows."
    few = dataclasses.replace(calm, rows=1, unusual=0.0)
    assert words.drift_headline(few).startswith(
        "This row does not differ significantly from the training rows, but so few"
    )
    sample = "A random sample of 60 training rows would"
    assert words.chance_words(calm) == f"{sample} differ this much in 30.0 % of samples (p = 0.3)."
    assert words.chance_words(drift) == f"{sample} differ this much less than once in 10,000 samples (p < 0.0001)."
    assert words.unusual_words(drift, {}) == "3 of 60 rows (5 %) are unusual compared with the training rows."
