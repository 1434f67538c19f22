"""Networks in half precision, or under autocast: their predictions are worked out in single precision."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import bayesnorm as bn
from bayesnorm import metrics

HALVES = [torch.bfloat16, torch.float16]
X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))


class Autocast(nn.Module):
    def __init__(self, network, dtype):
        super().__init__()
        self.network, self.dtype = network, dtype

    def forward(self, x):
        with torch.autocast("cpu", self.dtype):
            return self.network(x)


def network(outputs):
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, outputs)).eval()


def posterior(outputs, dtype, likelihood, autocast):
    model = Autocast(network(outputs), dtype) if autocast else network(outputs).to(dtype)
    return bn.MCBN(batch_size=8, states=32).fit(model, X, likelihood)


@pytest.mark.parametrize(
    ("likelihood", "autocast", "engine"),
    [
        (bn.Gaussian(4.0), True, None),
        (bn.Gaussian(4.0), False, bn.SigmaPoints(4)),
        (bn.Gaussian(4.0), True, bn.Delta()),
        (bn.Laplace(0.5), False, None),
        (bn.StudentT(5.0, 0.5), False, None),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("dtype", HALVES)
def test_real_targets(likelihood, dtype, autocast, engine):
    predictive = posterior(1, dtype, likelihood, autocast).predict(X, engine)
    y = predictive.mean
    parts = [predictive.variance, predictive.log_prob(y), predictive.crps(y), predictive.cdf(y), predictive.sample(2)]
    parts += predictive.interval(0.9)
    assert all(part.dtype == torch.float32 and torch.isfinite(part).all() for part in [y, *parts])
    (inner, upper), (outer, top) = predictive.interval(0.5), predictive.interval(0.9)
    assert (outer < inner).all()
    assert (inner < upper).all()
    assert (upper < top).all()
    torch.testing.assert_close(predictive.cdf(top), torch.full_like(top, 0.95), rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("engine", [None, bn.Delta()], ids=lambda engine: type(engine).__name__)
def test_classes(dtype, engine):
    predictive = posterior(3, dtype, bn.Categorical(), False).predict(X, engine)
    assert predictive.probs.dtype == torch.float32
    torch.testing.assert_close(predictive.probs.sum(1), torch.ones(60), rtol=0, atol=1e-5)
    parts = predictive.mutual_information + predictive.expected_entropy
    torch.testing.assert_close(predictive.entropy, parts, rtol=0, atol=1e-5)


def test_calibration_of_targets_whose_squares_half_precision_cannot_hold():
    y = 400 * torch.randn(60, 1, generator=torch.Generator().manual_seed(1))
    calibrated = bn.calibrate(posterior(1, torch.float16, bn.Gaussian(), False), X, y)
    # Nothing is learned here, so the noise is the targets' own; 60 of them tell its variance to some 20 %.
    assert float(calibrated.likelihood.noise) == pytest.approx(float(y.var()), rel=0.5)


@pytest.mark.parametrize(
    ("likelihood", "dtype"),
    [
        (bn.Gaussian(100.0), torch.bfloat16),
        (bn.Laplace(0.1), torch.float16),
        (bn.StudentT(5.0, 0.1), torch.bfloat16),
        (bn.Categorical(), torch.float16),
    ],
)
def test_scoring_under_autocast_changes_nothing(likelihood, dtype):
    classes = isinstance(likelihood, bn.Categorical)
    f = 1000 + 0.1 * torch.randn(16, 20, 3 if classes else 1, generator=torch.Generator().manual_seed(0))
    y = torch.arange(20) % 3 if classes else f[0] + 0.05
    scores = [metrics.nll, metrics.brier, metrics.ece] if classes else [metrics.crps, metrics.pll, metrics.rmse]

    def numbers():
        predictive = likelihood.predictive(f)
        return [
            predictive.mean,
            predictive.epistemic,
            predictive.aleatoric,
            *(score(predictive, y) for score in scores),
        ]

    expected = numbers()
    with torch.autocast("cpu", dtype):
        result = numbers()
    for one, other in zip(result, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_means_over_samples_use_no_matrix_product():
    """In which a GPU that is set to TF32 would round the factors to 10 bits."""
    used = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            used.append(function.overloadpacket.__name__)
            return function(*args, **(kwargs or {}))

    predictive = bn.Gaussian().predictive(torch.randn(7, 5, 2, 3, generator=torch.Generator().manual_seed(0)))
    with Watch():
        _ = predictive.mean, predictive.epistemic, predictive.aleatoric
    assert used
    assert not {"mm", "addmm", "bmm", "baddbmm"} & set(used)
    torch.testing.assert_close(predictive.mean, predictive.loc.mean(0))
