"""Networks of the image experiments: trained, interrupted, kept and read again."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from bayesnorm.errors import BayesNormError
from experiments.data import IMAGENET_MEAN, IMAGENET_STD, load_cifar10, to_network_input
from experiments.image_networks import training
from experiments.image_networks.datasets import DATASETS, load_images
from experiments.image_networks.networks import NETWORKS
from experiments.image_networks.recipes import RECIPES, recipe_for
from experiments.image_networks.training import Plan, score, trained_network


class Killed(BaseException):
    """Stands for a kill."""


@pytest.fixture
def digits(small_sets):
    """MNIST with 48 training and 20 test images."""
    small_sets("mnist", train=48, test=20)


def plan(**changes):
    return Plan.of("lenet5", "mnist", "paper", **{"epochs": 3, "batch_size": 16, **changes})


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
    kept = load_file(tmp_path / "net.safetensors")
    assert kept["features.0.weight"].dtype == torch.float16
    assert kept["features.1.running_var"].dtype == torch.float32
    for name, value in network.state_dict().items():
        assert name.endswith("num_batches_tracked") or torch.equal(value, kept[name].float()), name


def test_a_killed_training_goes_on(digits, tmp_path, monkeypatch):
    whole, told = trained_network(plan(), tmp_path / "whole", "net")
    real = training.train

    def killed(*args, progress, **options):
        def tell(epoch, epochs):
            progress(epoch, epochs)
            if epoch == 2:
                raise Killed

        return real(*args, progress=tell, **{**options, "checkpoint_every": 0})

    monkeypatch.setattr(training, "train", killed)
    with pytest.raises(Killed):
        trained_network(plan(), tmp_path, "net")
    assert (tmp_path / "net.checkpoint").exists()
    monkeypatch.setattr(training, "train", real)
    again, after = trained_network(plan(), tmp_path, "net")
    assert after["losses"] == told["losses"]
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert not (tmp_path / "net.checkpoint").exists()


def test_images_become_what_the_given_networks_see(require):
    require("cifar10/labels.npz", "cifar10/test_first2000.webp")
    images, labels = load_images("cifar10", "test", 50)
    pixels, expected = load_cifar10("test", 50)
    assert labels.tolist() == expected.tolist()
    scaled = Plan.of("resnet20").transform().scaled(images)
    torch.testing.assert_close(scaled, to_network_input(pixels), rtol=1e-5, atol=1e-5)
    fewer, labels = load_images("cifar5", "test", 50)
    assert labels.tolist() == [label for label in expected.tolist() if label < 5]
    assert torch.equal(fewer, images[torch.from_numpy(expected) < 5])
    assert (DATASETS["cifar10"].mean, DATASETS["cifar10"].std) == (IMAGENET_MEAN, IMAGENET_STD)


def test_digits_are_padded_to_32_pixels(digits):
    images, _ = load_images("mnist", "train")
    assert images.shape == (48, 1, 32, 32)
    assert not images[:, :, :2].any()
    assert images[:, :, 2:30, 2:30].any()


def test_every_network_has_recipes_and_takes_every_kind_of_image():
    for network in NETWORKS:
        assert all(recipe_for(network, preset).epochs >= 1 for preset in RECIPES)
        if network.startswith(("lenet", "resnet20")):  # the larger ones have tests of their own
            for data, made in DATASETS.items():
                model = Plan.of(network, data).new_network().eval()
                assert model(torch.zeros(1, made.channels, 32, 32)).shape == (1, made.classes)


def test_learning_rates_follow_the_batch_size():
    assert Plan.of("resnet18", preset="paper").recipe.peak == pytest.approx(0.4)
    assert Plan.of("resnet18", preset="paper", batch_size=128).recipe.peak == pytest.approx(0.1)


def test_unknown_names():
    for arguments, message in (
        ({"network": "resnet7"}, "network must be .*one of lenet5.*, got 'resnet7'"),
        ({"network": "resnet20", "data": "cifar"}, "data must be .*one of cifar10.*, got 'cifar'"),
        ({"network": "resnet20", "preset": "slow"}, "preset must be .*one of quick.*, got 'slow'"),
    ):
        with pytest.raises(BayesNormError, match=message):
            Plan.of(**arguments)
