"""The drift test: its level, its power, where it points to, and what it refuses."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.errors import InputError, NotComparableError
from bayesnorm.posterior.batch_variation import MOST_PAIRED
from bayesnorm.shift import Drift, holm

from .conftest import BATCH_SIZE, INPUTS, ROWS, fitted, fresh, network

# More batches than are held against one another when a posterior is fitted.
MANY = MOST_PAIRED + 8
METHODS = [(bn.MCBN, {}), (bn.StochasticBN, {}), (bn.GaussianBN, {}), (bn.GaussianBN, {"rank": 8})]


@pytest.mark.parametrize(("size", "states"), [(1, 128), (40, 128), (96, MANY)])
def test_rows_like_those_of_training_ring_as_often_as_the_level_says(size, states):
    posterior, batches = fitted(states=states), 240
    assert posterior.training_batches.counts[-1] == states
    results = [bn.drift(posterior, part).p_value for part in fresh(size * batches, 7).split(size)]
    # Three standard errors above 7 per cent: the level, and that one posterior's own reference is a sample too.
    assert np.mean(np.array(results) < 0.05) < 0.07 + 3 * np.sqrt(0.05 * 0.95 / batches)
    assert 0.2 < np.mean(np.array(results) < 0.5) < 0.75


@pytest.mark.parametrize(("method", "options"), METHODS)
def test_every_method_sees_rows_from_elsewhere_and_the_layer_where_they_differ(method, options):
    posterior = fitted(method, **options)
    x = fresh(32, 3)
    assert bn.drift(posterior, x).p_value > 0.01
    x[:, 0] += 2
    comparison = bn.drift(posterior, x)
    assert comparison.p_value < 1e-4
    assert comparison.first_layer == "1"
    assert comparison.rows == 32
    assert [layer.name for layer in comparison.layers] == ["1", "4", "7"]
    assert "differ from the training distribution (p < 0.001)" in comparison.summary()
    assert "First layer that differs: 1." in comparison.summary()


def test_a_change_that_later_layers_normalise_away_is_seen_at_the_first():
    # A change of scale is gone after the first batch-norm layer, so most layers see nothing.
    comparison = bn.drift(fitted(), fresh(64, 4) * 3)
    assert comparison.p_value < 1e-6
    assert comparison.first_layer == "1"
    assert comparison.layers[0].spread_ratio == pytest.approx(3, rel=0.15)
    assert bn.drift(fitted(), fresh(64, 4)).first_layer is None


def test_effect_sizes_are_those_of_the_shift():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 1)).eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(4))
    generator = torch.Generator().manual_seed(0)
    posterior = bn.MCBN(32, states=256).fit(model, torch.randn(4096, 4, generator=generator))
    x = torch.randn(1024, 4, generator=generator) * 1.5 + torch.tensor([0.8, 0.0, 0.0, 0.0])
    (layer,) = bn.drift(posterior, x).layers
    # Means moved by .8 in one of four channels of standard deviation 1; standard errors are 1.5 / sqrt(1024).
    assert layer.mean_shift == pytest.approx(0.4, abs=0.06)
    assert layer.spread_ratio == pytest.approx(1.5, rel=0.04)


def test_more_rows_than_a_batch_are_compared_in_groups_and_see_smaller_shifts():
    x = fresh(1024, 5)
    x[:, 0] += 0.5
    few, many = bn.drift(fitted(), x[:16]), bn.drift(fitted(), x)
    assert many.p_value < 1e-4 < few.p_value


def test_one_row_of_a_dense_network_has_means_only():
    comparison = bn.drift(fitted(), fresh(1, 6))
    assert 0 < comparison.p_value <= 1
    assert all(layer.spread_ratio == 1 for layer in comparison.layers)
    assert bn.drift(fitted(), torch.full((1, INPUTS), 40.0)).p_value < 1e-3


def test_combined_posteriors_ensembles_and_loaded_ones(tmp_path):
    posterior, x = fitted(), fresh(24, 8) + 1.5
    expected = bn.drift(posterior, x)
    both = bn.combine(posterior, bn.MCDropout().fit(network(), None, bn.Gaussian()))
    assert bn.drift(both, x).p_value == expected.p_value
    ensemble = bn.ensemble([posterior, fitted(bn.StochasticBN)], bn.Gaussian())
    comparison = bn.drift(ensemble, x)
    assert [member.p_value for member in comparison.members] == [
        expected.p_value,
        bn.drift(fitted(bn.StochasticBN), x).p_value,
    ]
    low, high = sorted(member.p_value for member in comparison.members)
    assert low * 0.99 <= comparison.p_value <= high * 1.01
    posterior.save(tmp_path / "posterior")
    loaded = bn.load(tmp_path / "posterior", network())
    assert bn.drift(loaded, x).p_value == expected.p_value
    assert bn.drift(posterior.at_layers(1).at_batch_size(100), x).p_value == expected.p_value  # which all are watched


def test_the_network_stays_as_it_was_and_is_followed_when_it_changes(snapshot):
    posterior, x = fitted(), fresh(20, 9)
    seen = snapshot(network())
    before = bn.drift(posterior, x).p_value
    assert bn.drift(posterior, x.numpy()).p_value == before
    assert snapshot(network()) == seen
    bias = network()[0].bias.data
    bias += 3
    try:
        assert bn.drift(posterior, x).p_value < 1e-3
    finally:
        bias -= 3
    assert bn.drift(posterior, x).p_value == pytest.approx(before, rel=1e-4)


def test_a_network_that_moves_after_rows_were_compared_is_followed():
    model, x = copy.deepcopy(network()), fresh(20, 9)
    posterior = bn.MCBN(BATCH_SIZE, states=32).fit(model, fresh(ROWS, 0), bn.Gaussian())
    asked = (lambda: bn.drift(posterior, x).p_value, lambda: bn.drift(bn.adapt(posterior, x + 1), x + 1).p_value)
    before = [ask() for ask in asked]
    model.double()
    assert [ask() for ask in asked] == pytest.approx(before, rel=1e-4)
    model[0] = nn.Linear(INPUTS, 12).double()  # another world for the layers behind it
    assert bn.drift(posterior, x).p_value < 1e-3
    model.to("meta")
    with pytest.raises(bn.BayesNormError, match="meta device"):
        bn.drift(posterior, x)


class Clamps(nn.Sequential):
    """Keeps its weights small in every forward."""

    def forward(self, x):
        with torch.no_grad():
            self[0].weight.clamp_(-0.3, 0.3)
        return super().forward(x)


def test_a_network_that_clamps_its_weights_is_compared():
    model = Clamps(nn.Linear(INPUTS, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).eval()
    posterior = bn.MCBN(BATCH_SIZE, states=32).fit(model, fresh(200, 0), bn.Gaussian())
    assert 0 < bn.drift(posterior, fresh(40, 1)).p_value <= 1


def test_batches_of_any_size_are_run_again_in_smaller_ones():
    for size in (2, 5, 17):
        posterior = bn.MCBN(size, states=40).fit(network(), fresh(200, 0), bn.Gaussian())
        assert posterior.training_batches.sizes[-1] == size
        assert 0 < bn.drift(posterior, fresh(7, 1)).p_value <= 1


def pooled_network():
    """A network whose second batch norm sees one number per image, as behind global pooling."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
    return nn.Sequential(*convolution, nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 3)).eval()


@pytest.mark.parametrize("batch_size", [5, 8])
def test_few_images_ring_as_often_as_the_level_says_after_a_fit_on_few_batches(batch_size):
    # Without batches of 1, 2 and 4 images in the fit, the variances of so few look too small: all of them rang.
    generator = torch.Generator().manual_seed(0)
    model, train = pooled_network(), torch.randn(512, 3, 8, 8, generator=generator)
    posterior = bn.MCBN(batch_size, states=32).fit(model, train, bn.Categorical())
    sizes = [size for size in (1, 2, 4) if size < batch_size]
    assert set(sizes) < set(posterior.training_batches.sizes)
    for size in sizes:
        seen = [bn.drift(posterior, torch.randn(size, 3, 8, 8, generator=generator)).p_value for _ in range(80)]
        assert np.mean(np.array(seen) < 0.05) < 0.07 + 3 * np.sqrt(0.05 * 0.95 / 80)
        assert min(seen) > 1e-4


def test_pairs_of_rows_ring_as_often_as_the_level_says():
    # Two rows, normalised by themselves, are 1 and -1: the means of the next layer are nearly constant, except for
    # rare pairs. Next to the few pairs of a fit, 9 % of all pairs rang, some with p = 2e-10.
    seen = np.array([bn.drift(fitted(states=64), pair).p_value for pair in fresh(1200, 11).split(2)])
    assert np.mean(seen < 0.05) < 0.07 + 3 * np.sqrt(0.05 * 0.95 / len(seen))
    assert seen.min() > 1e-7


def test_fewer_rows_than_the_reference_has_are_refused():
    batches = fitted().training_batches
    larger = {name: getattr(batches, name)[2:] for name in ("sizes", "counts", "centers", "widths", "logs")}
    posterior = dataclasses.replace(fitted(), training_batches=dataclasses.replace(batches, **larger))
    with pytest.raises(bn.BayesNormError, match=r"x has 2 examples, but .* at least 4 training examples vary"):
        bn.drift(posterior, fresh(2, 1))
    assert bn.drift(posterior, fresh(4, 1)).p_value > 0


def test_halves_of_batches_are_no_size_of_their_own_where_smaller_ones_tell_more():
    # Their centre, from a dozen batches, would be off in every batch of a stream: 37 of 200 monitors rang.
    many = bn.MCBN(32, states=512).fit(network(), fresh(ROWS, 0), bn.Gaussian())
    assert many.training_batches.sizes == (1, 2, 4, 8, 32)
    few_rows = bn.MCBN(8).fit(network(), fresh(ROWS, 0), bn.Gaussian())
    assert few_rows.training_batches.sizes[-2:] == (4, 8)


class Squeezes(nn.Module):
    """Normalises the steps of a sequence as if they were rows, and takes no single row."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(3), nn.Linear(3, 1)

    def forward(self, x):
        steps = self.norm(x.reshape(-1, 3)).view(-1, 2, 3).mean(1).squeeze()
        assert steps.dim() == 2, "a batch"
        return self.head(steps)


@pytest.mark.parametrize("kind", ["no eps", "no single row"])
def test_networks_that_take_no_single_row_are_fitted_and_compared_all_the_same(kind, tmp_path):
    model = (
        nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, eps=0), nn.Linear(4, 1)) if kind == "no eps" else Squeezes()
    )
    posterior = bn.MCBN(8, states=128).fit(model.eval(), fresh(200, 0), bn.Gaussian())
    assert 1 not in posterior.training_batches.sizes
    posterior.save(tmp_path / "posterior")
    assert 0 < bn.drift(bn.load(tmp_path / "posterior", model), fresh(6, 1)).p_value <= 1


def test_copies_of_a_posterior_that_has_compared_compare_too():
    posterior, x = fitted(), fresh(20, 9)
    expected = bn.drift(posterior, x).p_value
    for again in (copy.deepcopy(posterior), pickle.loads(pickle.dumps(posterior)), posterior):
        assert bn.drift(again, x).p_value == expected


def test_what_cannot_be_compared_is_refused():
    x = fresh(20, 0)
    with pytest.raises(bn.BayesNormError, match=r"posterior is a DropoutPosterior, which is not a posterior over"):
        bn.drift(bn.MCDropout().fit(network(), None, bn.Gaussian()), x)
    few = bn.MCBN(BATCH_SIZE, states=4).fit(network(), fresh(ROWS, 0), bn.Gaussian())
    with pytest.raises(bn.BayesNormError, match=r"fewer than 8 batches.* Fit it again with states=256"):
        bn.drift(few, x)
    with pytest.raises(InputError, match=r"x has .*NaN"):
        bn.drift(fitted(), x * torch.nan)
    with pytest.raises(InputError, match=r"x.*the network's forward .*failed"):
        bn.drift(fitted(), x[:, :3])


def test_a_drift_without_a_layer_beyond_chance_starts_nowhere():
    assert Drift(0.01, 4, 1.3, ()).first_layer is None


def test_holm_by_hand_and_in_the_given_order():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.9, 0.6]), [1, 1])
    assert holm([]).shape == (0,)


def test_a_network_whose_training_examples_are_all_the_same_is_not_comparable():
    same = nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)).eval()
    posterior = bn.MCBN(16, states=32).fit(same, torch.zeros(200, 1))
    with pytest.raises(NotComparableError, match="do not vary"):
        bn.drift(posterior, torch.ones(40, 1))
