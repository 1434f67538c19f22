"""Networks for tables."""

import pytest
import torch
from torch import nn

from bayesnorm.errors import BayesNormError
from bayesnorm.tabular.networks import PiecewiseLinear, Waves, encoder_for, network_for, parsed_encoding
from bayesnorm.tabular.stacked import Skip


def test_layers_of_one_width_have_a_way_around_them():
    network = network_for("mcbn", 3, 2, (8, 8, 4, 4), 0.0, 0)
    kinds = [type(layer) for layer in network]
    assert kinds == [nn.Linear, nn.BatchNorm1d, nn.ReLU, Skip, nn.Linear, nn.BatchNorm1d, nn.ReLU, Skip, nn.Linear]
    assert [type(layer) for layer in network[3]] == [nn.Linear, nn.BatchNorm1d, nn.ReLU]
    x = torch.randn(5, 3)
    h = network[:3].eval()(x)
    torch.testing.assert_close(network.eval()[:4](x), h + nn.Sequential(*network[3])(h))


def test_dropout_and_batch_norm():
    for method, rate, drops in (("mcbn", 0.0, 0), ("mcbn", 0.1, 2), ("dropout", 0.1, 2)):
        modules = list(network_for(method, 3, 2, (8, 8), rate, 0).modules())
        assert sum(isinstance(module, nn.Dropout) for module in modules) == drops
        assert sum(isinstance(module, nn.BatchNorm1d) for module in modules) == (0 if method == "dropout" else 2)


def test_encodings_by_name():
    x = torch.randn(50, 2)
    assert isinstance(encoder_for("plain", x), nn.Identity)
    assert isinstance(encoder_for("bins 5", x), PiecewiseLinear)
    assert isinstance(encoder_for("waves 5", x), Waves)
    assert parsed_encoding("bins 16") == ("bins", 16)
    for wrong in ("bins", "bins 0", "bins -1", "bins 1001", "bins ²", "plain 3", "", "trees 4", 7, "bins 1.5"):
        with pytest.raises(BayesNormError, match=r'^encoding must be "plain", "bins N" or "waves N" .*, got '):
            parsed_encoding(wrong)


def test_weights_come_from_no_generator_that_others_use(monkeypatch):
    class Meddled(nn.Linear):
        """In another thread, training begins anew with the generator that all share while weights are drawn."""

        def __init__(self, in_features, out_features, bias=True, device=None):
            torch.manual_seed(1)
            super().__init__(in_features, out_features, bias, device)

    alone, before = network_for("mcbn", 3, 2, (4,), 0.0, 7).state_dict(), torch.get_rng_state()
    monkeypatch.setattr(nn, "Linear", Meddled)
    other = network_for("mcbn", 3, 2, (4,), 0.0, 7).state_dict()
    torch.set_rng_state(before)
    assert all(torch.equal(alone[name], other[name]) for name in alone)
