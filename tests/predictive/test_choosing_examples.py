"""What cannot choose examples is refused, predictives are iterables of examples, and notebooks get a small picture."""

from xml.etree import ElementTree

import pytest
import torch

import bayesnorm as bn
from bayesnorm.errors import InputError

F = torch.randn(6, 5, 1, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (5, "from -5 to 4, got 5"),
        ([0, -6], "from -5 to 4"),
        ([0.5], "a list of positions"),
        ((1, 2), "a list of positions"),
        ([[1]], "a list of positions"),
        (torch.ones(5, 2) > 0, r"a mask of shape \(5,\)"),
        ([True, False], r"a mask of shape \(5,\)"),
        ("depth", "rows must be"),
        (None, "rows must be"),
        (..., "rows must be"),
    ],
)
def test_choices_that_are_refused(rows, message):
    for predictive in (bn.Gaussian().predictive(F), bn.Categorical().predictive(F)):
        with pytest.raises(InputError, match=message):
            predictive[rows]


def test_a_mask_of_single_outputs_is_one_of_examples():
    predictive = bn.Gaussian().predictive(F)
    mask = predictive.mean > 0
    assert mask.shape == (5, 1)
    assert torch.equal(predictive[mask].mean, predictive.mean[mask[:, 0]])


def test_a_predictive_is_iterable():
    predictive = bn.Gaussian().predictive(F)
    assert [len(one) for one in predictive] == [1] * 5
    assert torch.equal(torch.cat([one.mean for one in predictive]), predictive.mean)
    tasks = bn.MultiTask({"a": bn.Gaussian(), "b": bn.Categorical()}).predictive(F.expand(6, 5, 2))
    assert list(tasks) == ["a", "b"]


def pictures(html):
    """Return the widths of all bars of every picture; what is not well-formed raises an error."""
    body = ElementTree.fromstring(f"<body>{html}</body>")
    return [[float(bar.get("width")) for bar in picture.iter("rect")] for picture in body.iter("svg")]


def test_a_picture_for_notebooks():
    predictive = bn.Gaussian(4.0).predictive(F.repeat(1, 6, 1) * torch.arange(1.0, 31)[:, None])
    (widths,) = pictures(predictive._repr_html_())
    assert len(widths) == 3 * 12  # a dozen examples at most
    ratios = torch.tensor(widths).view(12, 3)
    shares = predictive.epistemic.sqrt() / predictive.std
    torch.testing.assert_close(ratios[:, 1] / ratios[:, 0], shares[:12, 0], rtol=0.02, atol=0.01)

    probs = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.0, 0.9]])
    (widths,) = pictures(bn.ClassificationPredictive(probs.log()[None])._repr_html_())
    assert widths == [165.0, 99.0, 66.0, 297.0, 33.0, 0.0]


def test_predictives_without_a_picture_are_text():
    several, maps = bn.Gaussian().predictive(torch.zeros(2, 3, 2)), bn.Categorical().predictive(torch.zeros(2, 3, 2, 4))
    infinite = bn.StudentT(1.5).predictive(F)
    for predictive in (several, maps, infinite, bn.Gaussian().predictive(F)[[]]):
        assert predictive._repr_html_() == f"<pre>{predictive!r}</pre>"


def test_names_are_escaped():
    tasks = bn.MultiTask({"<script>": bn.Gaussian(), "b&b": bn.Categorical()}).predictive(F.expand(6, 5, 2))
    html = tasks._repr_html_()
    assert len(pictures(html)) == 2
    assert "<script>" not in html


def test_the_repr_of_many_tasks_is_short():
    tasks = bn.MultiTask({f"task {k}": bn.Gaussian() for k in range(50)}).predictive(F.expand(6, 5, 50))
    assert len(repr(tasks)) < 1000
