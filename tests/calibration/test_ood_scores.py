"""Scores of single inputs: p-values are uniform inside, and small outside."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesnorm as bn
from bayesnorm.network import single_input_statistics
from bayesnorm.network.collecting import reading


def images(count, seed):
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def posterior():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
    model = nn.Sequential(*model, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    for _ in range(20):
        model(images(64, seed=1))
    return bn.MCBN(batch_size=16, states=16).fit(model.eval(), images(200, seed=2), bn.Categorical())


def test_false_alarms_have_the_rate_and_other_images_are_detected(posterior):
    reference, inside = images(800, seed=3), images(400, seed=4)
    usual = bn.ood_scores(posterior, inside, reference, samples=8)
    assert set(usual.scores) == {"entropy", "mutual_information", "energy", "max_logit", "distance"}
    for name in usual.scores:
        # 400 inputs and a quantile of 400 others: standard error sqrt(.05 .95 (1/400 + 1/400)) = .0154
        assert abs(float(usual.flagged(name, 0.05).double().mean()) - 0.05) < 4 * 0.0154, name
        assert usual.p_values[name].shape == (400,)
        assert float(usual.p_values[name].min()) > 0
    blurred = nn.functional.avg_pool2d(inside, 3, 1, 1)
    assert float(bn.ood_scores(posterior, blurred, reference, samples=8).flagged().double().mean()) > 0.9
    assert len(repr(usual)) < 300


def test_an_input_has_the_same_scores_alone_and_in_company(posterior):
    reference, x = images(60, seed=3), images(5, seed=6)
    together = bn.ood_scores(posterior, x, reference, samples=4)
    alone = bn.ood_scores(posterior, x[2:3], reference, samples=4)
    for name, score in together.scores.items():
        torch.testing.assert_close(alone.scores[name], score[2:3], rtol=1e-4, atol=1e-5)


def test_statistics_are_those_of_one_input_in_the_deployed_network(posterior):
    x, hidden = images(6, seed=7), posterior.model[:4]
    means, log_variances = single_input_statistics(posterior.model, x)[2:]
    h = hidden(x).detach().double()
    torch.testing.assert_close(means, h.mean((2, 3)), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(log_variances, (h.var((2, 3), correction=0) + 1e-8).log(), rtol=1e-4, atol=1e-5)


def test_tables_and_regression_have_scores_too():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    x = torch.randn(300, 3)
    model(x)
    posterior = bn.MCBN(batch_size=16, states=16).fit(model.eval(), x, bn.Gaussian())
    scores = bn.ood_scores(posterior, x[:50] + 6, x[50:], samples=8)
    assert set(scores.scores) == {"epistemic", "distance"}
    assert float(scores.flagged().double().mean()) > 0.9


def test_inputs_of_any_kind_that_exceed_the_memory(posterior, monkeypatch):
    reference, x = images(60, seed=3), images(50, seed=6)
    expected = bn.ood_scores(posterior, x, reference, samples=4)
    monkeypatch.setattr(reading, "POOL_BYTES", 20 * x[0].numel() * 4)
    for source in (DataLoader(TensorDataset(x, x), 16), [(part, part) for part in x.split(16)], iter(x.split(16))):
        scores = bn.ood_scores(posterior, source, reference, samples=4)
        for name, score in expected.scores.items():
            torch.testing.assert_close(scores.scores[name], score, rtol=1e-4, atol=1e-5)


class Scaled(nn.Sequential):
    def forward(self, x, *, meta, scale):
        return super().forward((x + meta) * scale)


def test_several_inputs_and_arguments():
    torch.manual_seed(0)
    network = Scaled(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4)).eval()
    x, meta = torch.randn(2, 60, 3)
    options = {"forward_kwargs": {"scale": 2.0}}
    several = bn.MCBN(batch_size=16, states=16).fit(network, {"x": x, "meta": meta}, bn.Categorical(), **options)
    joined = bn.MCBN(batch_size=16, states=16).fit(nn.Sequential(*network).eval(), (x + meta) * 2, bn.Categorical())
    expected = bn.ood_scores(joined, (x + meta) * 2, (x + meta) * 2, samples=4)
    scores = bn.ood_scores(several, {"x": x, "meta": meta, "label": x}, {"x": x, "meta": meta}, samples=4)
    for name, score in expected.scores.items():
        torch.testing.assert_close(scores.scores[name], score, rtol=1e-4, atol=1e-5)


def test_bad_arguments(posterior):
    x = images(50, seed=8)
    for argument, reference, match in (
        (posterior.model, x, "posterior must be the result of a method's fit, got Sequential"),
        (posterior, x[:10], "reference has 10 inputs, but at least 40 are needed"),
    ):
        with pytest.raises(bn.BayesNormError, match=match):
            bn.ood_scores(argument, x, reference)
    scores = bn.ood_scores(posterior, x, x, samples=2)
    with pytest.raises(bn.BayesNormError, match=r"score must be one of entropy, .*, got 'magic'"):
        scores.flagged("magic")
