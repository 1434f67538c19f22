"""A loaded posterior warns if the network's weights are not those that it was saved for."""

import copy
import json
import warnings

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm import files


@pytest.fixture
def backbone_and_head():
    network = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    x = torch.randn(60, 3)
    network(x)
    return network.eval(), x


def saved(network, x, path, fit=None):
    posterior = (fit or bn.MCBN(8, states=4).fit)(network, x, bn.Categorical())
    posterior.save(path)
    return path


def loads_silently(path, network):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return bn.load(path, network)


@pytest.mark.parametrize("kind", ["mcbn", "dropout", "deterministic", "combined", "adapted"])
def test_a_new_head_on_a_frozen_backbone(backbone_and_head, tmp_path, kind):
    network, x = backbone_and_head
    network.append(nn.Dropout(0.2))
    mcbn, dropout = bn.MCBN(8, states=40), bn.MCDropout()
    fits = {
        "mcbn": mcbn.fit,
        "dropout": dropout.fit,
        "deterministic": lambda model, _, likelihood: bn.deterministic(model, likelihood),
        "combined": lambda *a: bn.combine(mcbn.fit(*a), dropout.fit(*a)),
        "adapted": lambda *a: bn.adapt(mcbn.fit(*a), x + 1),
    }
    path = saved(network, x, tmp_path / "net", fits[kind])
    loads_silently(path, network)
    with torch.no_grad():
        network[3].bias += 0.5
    with pytest.warns(bn.BayesNormWarning, match=r"weights of model differ .* in 1 of \d tensors, such as '3.bias'"):
        bn.load(path, network)


def test_a_network_in_higher_precision_is_compared_and_one_in_lower_precision_is_not(backbone_and_head, tmp_path):
    network, x = backbone_and_head
    path = saved(network, x, tmp_path / "net")
    loads_silently(path, network.double())
    with torch.no_grad():
        network[0].weight[0, 0] += 0.1
    with pytest.warns(bn.BayesNormWarning, match="such as '0.weight'"):
        bn.load(path, network)
    loads_silently(path, network.bfloat16())


def test_statistics_that_samples_replace_may_differ_a_little(backbone_and_head, tmp_path):
    """One more forward pass in training mode: the running statistics are compared with a tolerance."""
    network, x = backbone_and_head
    path = saved(network, x, tmp_path / "net")
    network[1].running_mean += 1e-3
    network[1].num_batches_tracked += 1
    loads_silently(path, network)


def test_files_that_contain_the_weights_do_not_compare_them(backbone_and_head, tmp_path):
    network, _ = backbone_and_head
    bn.ensemble([network, copy.deepcopy(network)], bn.Categorical()).save(tmp_path / "net")
    torch.nn.init.normal_(network[0].weight)
    loads_silently(tmp_path / "net", network)


def test_a_file_from_before_weights_were_compared_loads(backbone_and_head, tmp_path):
    network, x = backbone_and_head
    path = saved(network, x, tmp_path / "net")
    tensors, config = files.read(path)
    del config["weights"]
    files.write(path, tensors, config)
    with torch.no_grad():
        network[3].bias += 0.5
    loads_silently(path, network)


@pytest.mark.parametrize("digest", ["", "float32", "torch.float32 ", "os.system x", "torch.bfloat16 00"])
def test_a_digest_of_another_form_does_no_harm(backbone_and_head, tmp_path, digest):
    network, x = backbone_and_head
    path = saved(network, x, tmp_path / "net")
    tensors, config = files.read(path)
    config["weights"]["3.bias"] = digest
    config["weights"]["nothing"] = digest
    files.write(path, tensors, json.loads(json.dumps(config)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bn.load(path, network)
