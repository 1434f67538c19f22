"""A predictive shows itself in one line that a person can read."""

import torch

from bayesnorm.predictive import ClassificationPredictive, MultiTaskPredictive, RegressionPredictive


def regression():
    loc = torch.tensor([1.0, 3.0])[:, None].expand(2, 5)
    return RegressionPredictive(loc, torch.tensor(1.0))


def test_regression_shows_means_and_uncertainty_of_the_first_rows():
    shown = "mean 2, 2, 2, ...; std 1.414, 1.414, 1.414, ...; epistemic std 1, 1, 1, ..."
    assert repr(regression()) == f"RegressionPredictive((5,), 2 samples: {shown})"


def test_classes_show_labels_and_uncertainty():
    probs = torch.tensor([[[0.25, 0.75]], [[0.25, 0.75]]])
    shown = "label 1; confidence 0.75; mutual information 0"
    assert repr(ClassificationPredictive(probs.log())) == f"ClassificationPredictive((1, 2), 2 samples: {shown})"


def test_tasks_show_each():
    assert repr(MultiTaskPredictive({"depth": regression()})) == f"MultiTaskPredictive(depth={regression()!r})"
