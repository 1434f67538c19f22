"""Networks of the image experiments: trained, interrupted, kept and read again."""

import json

import pytest
import torch
from safetensors.torch import load_file

from experiments.image_networks.datasets import DATASETS, load_images
from experiments.image_networks.networks import NETWORKS
from experiments.image_networks.recipes import RECIPES, recipe_for
from experiments.image_networks.training import Plan, score, trained_network


@pytest.fixture
def digits(small_sets):
    """MNIST with 48 training and 20 test images."""
    small_sets("mnist", train=48, test=20)


def plan(**changes):
    return Plan.from_preset("lenet5", "mnist", "paper", **{"epochs": 3, "batch_size": 16, **changes})


def test_command_trains_writes_and_shows_again(experiments, digits, tmp_path):
    command = ["train-image", "lenet5", "--data", "mnist", "--preset", "paper", "--epochs", 8, "--batch-size", 16]
    command += ["--device", "cpu", "--out", tmp_path / "new"]
    ended = experiments(*command)
    assert ended.code == 0
    assert "lenet5 on 48 images of mnist: accuracy" in ended.out
    told = json.loads((tmp_path / "new" / "lenet5_mnist_0.json").read_text())
    assert told["recipe"]["epochs"] == 8
    assert told["machine"]["torch"] == torch.__version__
    assert told["seconds"]["all"] > told["seconds"]["training"] > 0
    assert len(told["losses"]) == 8
    assert told["losses"][-1] < told["losses"][0]
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"lenet5_mnist_0.json", "lenet5_mnist_0.safetensors"}
    assert experiments(*command).out == ended.out
    other = experiments(*command, "--dropout", 0.5)
    assert other.code == 1
    assert "describes another network" in other.err


def test_what_was_scored_is_what_is_read_back(digits, tmp_path):
    network, told = trained_network(plan(), tmp_path, "net")
    scores = score(network, *load_images("mnist", "test"), plan())
    assert scores == pytest.approx({key: told[key] for key in ("accuracy", "nll")}, rel=1e-5)
    stored = load_file(tmp_path / "net.safetensors")
    assert stored["features.0.weight"].dtype == torch.float16
    assert stored["features.1.running_var"].dtype == torch.float32
    for name, value in network.state_dict().items():
        assert name.endswith("num_batches_tracked") or torch.equal(value, stored[name].float()), name


def test_every_network_has_recipes_and_takes_every_kind_of_image():
    for network in NETWORKS:
        assert all(recipe_for(network, preset).epochs >= 1 for preset in RECIPES)
        if network.startswith(("lenet", "resnet20")):  # the larger ones have tests of their own
            for data, made in DATASETS.items():
                model = Plan.from_preset(network, data).new_network().eval()
                assert model(torch.zeros(1, made.channels, 32, 32)).shape == (1, made.classes)
