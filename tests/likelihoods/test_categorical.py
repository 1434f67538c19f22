"""Classes from logits: softmax, the binary case, pixels, temperature."""

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax

import bayesnorm as bn
from bayesnorm.errors import InputError


def test_temperature_divides_the_logits():
    for temperature in (0.5, 1.0, 3.0):
        f = torch.randn(5, 4, 3, dtype=torch.float64)
        predictive = bn.Categorical(temperature).predictive(f)
        np.testing.assert_allclose(predictive.probs, softmax(f.numpy() / temperature, axis=2).mean(0), rtol=1e-12)


def test_a_single_logit_is_that_of_class_one():
    for shape in ((5, 4), (5, 4, 1)):
        f = torch.randn(shape, dtype=torch.float64)
        predictive = bn.Categorical(2.0).predictive(f)
        assert predictive.probs.shape == (4, 2)
        ones = expit(f.reshape(5, 4).numpy() / 2.0).mean(0)
        np.testing.assert_allclose(predictive.probs[:, 1], ones, rtol=1e-12)
        np.testing.assert_allclose(predictive.probs[:, 0], 1 - ones, rtol=1e-10)


def test_a_single_logit_per_pixel():
    f = torch.randn(5, 4, 1, 3, 2, dtype=torch.float64)
    predictive = bn.Categorical().predictive(f)
    assert predictive.probs.shape == (4, 2, 3, 2)
    np.testing.assert_allclose(predictive.probs[:, 1], expit(f[:, :, 0].numpy()).mean(0), rtol=1e-12)


def test_logits_far_apart_stay_finite():
    f = torch.tensor([[[1e4, -1e4, 0.0]], [[-1e4, 1e4, 0.0]]], dtype=torch.float32)
    predictive = bn.Categorical().predictive(f)
    for name in ("probs", "entropy", "expected_entropy", "mutual_information", "variance"):
        assert torch.isfinite(getattr(predictive, name)).all(), name
    torch.testing.assert_close(predictive.mutual_information, torch.tensor([2.0]).log())
    assert torch.isfinite(predictive.log_prob([0])).all()


def test_outputs_without_rows():
    with pytest.raises(bn.BayesNormError, match=r"f must have shape .* got outputs of shape \(5,\)"):
        bn.Categorical().predictive(torch.zeros(5))


def test_pixels_the_other_way_round_are_refused():
    f, y = torch.randn(2, 3, 4, 6), torch.zeros(2, 4, 6, dtype=torch.long)
    with pytest.raises(InputError, match=r"y has shape \(2, 6, 4\). Pass whole class numbers of shape \(2, 4, 6\)"):
        bn.Categorical().loss(f, y.mT)
    torch.testing.assert_close(bn.Categorical().loss(f, y[:, None]), bn.Categorical().loss(f, y))
