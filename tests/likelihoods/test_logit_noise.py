"""Classes from noisy logits: quadrature's probabilities, the same every time."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.special import expit, softmax

import bayesnorm as bn
from bayesnorm.errors import InputError
from bayesnorm.likelihoods import heteroscedastic


def binary(mean, std):
    return integrate.quad(lambda e: expit(mean + std * e) * stats.norm.pdf(e), -12, 12, limit=200)[0]


def test_binary_probabilities_are_those_of_quadrature():
    for std in (0.01, 0.5, 2.0, 8.0):
        means = torch.linspace(-4, 4, 9, dtype=torch.float64)
        f = torch.stack([means, torch.full_like(means, 2 * np.log(std))], dim=1)[None]
        expected = [binary(float(mean), std) for mean in means]
        # Plain sampling would be off by 0.5 / sqrt(samples) = 0.06 and 0.008; evenly spread samples by less.
        for samples, error in [(64, 0.012), (4096, 0.0005)]:
            probs = bn.LogitNoise(samples=samples).predictive(f).probs
            np.testing.assert_allclose(probs[:, 1], expected, atol=error)
            torch.testing.assert_close(probs.sum(1), torch.ones(9, dtype=torch.float64))


def test_many_classes_are_those_of_plain_sampling():
    generator = np.random.default_rng(0)
    f = torch.from_numpy(generator.normal(size=(1, 5, 8)))
    logits, std = f[0, :, :4].numpy(), np.exp(f[0, :, 4:].numpy() / 2)
    n = 200_000
    drawn = np.stack([softmax(logits + std * generator.normal(size=(5, 4)), axis=1) for _ in range(n // 50)])
    probs = bn.LogitNoise(samples=2**14).predictive(f).probs.numpy()
    assert (np.abs(drawn.mean(0) - probs) < 4.5 * drawn.std(0) / (n // 50) ** 0.5 + 1e-3).all()


def test_without_noise_it_is_categorical():
    logits = torch.randn(3, 5, 4, 2, dtype=torch.float64)
    for per_class, noises in [(True, 4), (False, 1)]:
        f = torch.cat([logits, torch.full((3, 5, noises, 2), -1e6, dtype=torch.float64)], dim=2)
        result = bn.LogitNoise(1.7, samples=4, per_class=per_class).predictive(f)
        torch.testing.assert_close(result.probs, bn.Categorical(1.7).predictive(logits).probs, rtol=1e-6, atol=1e-6)


def test_one_log_variance_for_all_is_the_same_for_each():
    logits, log_variance = torch.randn(3, 5, 4), torch.randn(3, 5, 1)
    shared = bn.LogitNoise(per_class=False).predictive(torch.cat([logits, log_variance], 2))
    separate = bn.LogitNoise().predictive(torch.cat([logits, log_variance.expand(-1, -1, 4)], 2))
    torch.testing.assert_close(shared.probs, separate.probs)


def test_the_same_noise_for_every_row_and_draw_and_every_time():
    row = torch.randn(1, 1, 6)
    f = row.expand(4, 7, 6)
    probs = bn.LogitNoise().predictive(f).log_probs
    assert torch.equal(probs, probs[:1, :1].expand_as(probs))
    before = torch.get_rng_state()
    heteroscedastic._standard_noise.cache_clear()
    assert torch.equal(bn.LogitNoise().predictive(f).log_probs, probs)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(bn.LogitNoise(seed=1).predictive(f).log_probs, probs)
    assert bn.LogitNoise().predictive(f).mutual_information.max() < 1e-6


def test_blocks_change_nothing(monkeypatch):
    f = torch.randn(3, 5, 6, 2, 2, dtype=torch.float64)
    whole = bn.LogitNoise().predictive(f).log_probs
    monkeypatch.setattr(heteroscedastic, "BLOCK_NUMBERS", 1000)
    torch.testing.assert_close(bn.LogitNoise().predictive(f).log_probs, whole)


def test_noise_learns_which_labels_are_guesses():
    """Two inputs, one whose label is always 1 and one whose label is a coin's: the coin gets the noise."""
    generator = torch.Generator().manual_seed(0)
    x = torch.eye(2).repeat(200, 1)
    y = torch.where(x[:, 0] > 0, 1, torch.randint(0, 2, (400,), generator=generator))
    model = torch.nn.Linear(2, 4, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(150):
        optimiser.zero_grad()
        loss = bn.LogitNoise().loss(model(x), y)
        loss.backward()
        optimiser.step()
    probs = bn.LogitNoise().predictive(model(torch.eye(2)).detach()[None]).probs
    assert probs[0, 1] > 0.95
    assert abs(probs[1, 1] - y[x[:, 1] > 0].float().mean()) < 0.05


def test_bad_options():
    with pytest.raises(bn.BayesNormError, match=r"^per_class "):
        bn.LogitNoise(per_class=1)


def test_heads_of_the_wrong_width():
    for outputs, per_class in ((3, True), (1, True), (1, False)):
        with pytest.raises(InputError, match=rf"outputs per example is {outputs}, .*with_noise_head"):
            bn.LogitNoise(per_class=per_class).predictive(torch.zeros(2, 4, outputs))
