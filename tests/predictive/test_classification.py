"""Class probabilities, and how uncertainty splits into parts."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import entropy as scipy_entropy
from torch.utils._python_dispatch import TorchDispatchMode

import bayesnorm as bn
from bayesnorm.errors import InputError


def predictive(n=6, batch=5, classes=3, pixels=(), scale=2.0, seed=0, weights=None, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    f = scale * torch.randn(n, batch, classes, *pixels, dtype=torch.float64, generator=generator)
    return bn.Categorical().predictive(f.to(dtype), weights)


@settings(max_examples=40)
@given(st.integers(1, 8), st.integers(2, 6), st.floats(0, 60), st.integers(0, 10_000), st.booleans())
def test_laws_of_entropy_and_variance(n, classes, scale, seed, weighted):
    weights = torch.arange(1.0, n + 1, dtype=torch.float64) if weighted else None
    p = predictive(n=n, classes=classes, scale=scale, seed=seed, weights=weights)
    torch.testing.assert_close(p.entropy, p.mutual_information + p.expected_entropy, rtol=1e-9, atol=1e-10)
    assert (p.mutual_information >= 0).all()
    assert (p.mutual_information <= p.entropy + 1e-12).all()
    assert (p.entropy <= np.log(classes) + 1e-12).all()
    torch.testing.assert_close(p.variance, p.epistemic + p.aleatoric)
    torch.testing.assert_close(p.variance, p.probs * (1 - p.probs), rtol=1e-9, atol=1e-12)
    assert (p.epistemic >= 0).all()
    torch.testing.assert_close(p.probs.sum(1), torch.ones(5, dtype=torch.float64))


@settings(max_examples=20)
@given(st.floats(0, 60), st.integers(0, 10_000))
def test_mutual_information_is_never_negative_in_single_precision(scale, seed):
    p = predictive(scale=scale, seed=seed, dtype=torch.float32)
    assert (p.mutual_information >= 0).all()
    torch.testing.assert_close(p.entropy, p.mutual_information + p.expected_entropy, rtol=1e-4, atol=1e-5)


def test_entropies_against_scipy():
    p = predictive()
    np.testing.assert_allclose(p.entropy, scipy_entropy(p.probs.numpy(), axis=1), rtol=1e-10)
    parts = scipy_entropy(p.log_probs.exp().numpy(), axis=2).mean(0)
    np.testing.assert_allclose(p.expected_entropy, parts, rtol=1e-10)


def test_samples_that_agree_have_no_mutual_information():
    one = torch.randn(1, 5, 3, dtype=torch.float64)
    p = bn.Categorical().predictive(one.expand(8, -1, -1))
    assert p.mutual_information.max() < 1e-14
    assert p.epistemic.max() < 1e-30


def test_log_prob_is_the_log_of_the_mean_probability():
    for pixels in ((), (2,), (3, 2)):
        p = predictive(pixels=pixels)
        y = torch.randint(0, 3, (5, *pixels))
        assert p.log_prob(y).shape == (5, *pixels)
        expected = p.probs.gather(1, y[:, None])[:, 0].log()
        torch.testing.assert_close(p.log_prob(y), expected)
        torch.testing.assert_close(p.log_prob(y.numpy().astype(float)), expected)
        torch.testing.assert_close(p.log_prob(y.to(torch.uint8)), expected)
        torch.testing.assert_close(p.log_prob(y.tolist()), expected)


def test_labels_and_confidence():
    p = predictive()
    assert torch.equal(p.label, p.probs.argmax(1))
    torch.testing.assert_close(p.confidence, p.probs.gather(1, p.label[:, None])[:, 0])
    assert torch.equal(p.mean, p.probs)


def test_targets_of_another_shape():
    for shape in ((4,), (5, 1), (1, 5), (5, 3), ()):
        with pytest.raises(InputError, match=r"y has shape .* of shape \(5,\)"):
            predictive().log_prob(torch.zeros(shape, dtype=torch.long))


def test_bad_targets():
    for y, said in (
        ([0, 1, 2, 3, 0], r"y has classes from 0 to 3, but the network has classes 0 to 2"),
        ([0, 1, -1, 0, 0], r"y has classes from -1 to 1"),
        ([0.5, 1, 1, 1, 1], r"y has shape \(5,\) and torch.float64. Pass whole"),
        ([float("nan"), 1, 1, 1, 1], r"^y "),
        (["a", "b", "c", "d", "e"], r"^y "),
        (None, r"^y "),
    ):
        with pytest.raises(InputError, match=said):
            predictive().log_prob(y)


def test_the_log_probability_of_one_class_looks_at_no_other():
    """With a thousand classes and many samples, arrays of the size of all of them would be the most of the cost."""
    sizes = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            sizes.append(result.numel() if isinstance(result, torch.Tensor) else 0)
            return result

    p, y = predictive(classes=100, pixels=(2,)), torch.arange(10).view(5, 2)
    with Watch():
        result = p.log_prob(y)
    assert max(sizes) <= 6 * 5 * 2
    torch.testing.assert_close(result, p.probs.gather(1, y[:, None])[:, 0].log())
