"""The digits network of the page in JavaScript and in torch: same weights, same samples, same probabilities."""

import base64
import dataclasses
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm import demo
from bayesnorm.posterior import Empirical

NODE = shutil.which("node")
ASKED = 40
FOLDER = Path(demo.__file__).parent
SCRIPT = """
import { readFileSync } from "node:fs";
const [folder, file] = process.argv.slice(2);
const { DigitsNetwork } = await import(`file://${folder}/numerics/digits.js`);
const { imageOf, rotated } = await import(`file://${folder}/numerics/strokes.js`);
const { SHAPES } = await import(`file://${folder}/page/shapes.js`);
const network = new DigitsNetwork(JSON.parse(readFileSync(`${folder}/digits.json`, "utf8")));
const images = JSON.parse(readFileSync(file, "utf8"));
const predict = (image) => {
  const { probabilities, entropy, mutualInformation } = network.predict(image);
  return { probabilities: [...probabilities], entropy, mutualInformation };
};
const answers = images.map((image) => predict(Float64Array.from(image)));
const shapes = Object.entries(SHAPES).map(([name, strokes]) => {
  return { name, ...predict(imageOf(strokes)) };
});
console.log(JSON.stringify({ answers, shapes, limits: network.limits }));
"""


@pytest.fixture(scope="module")
def content():
    return json.loads((FOLDER / "digits.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def digits():
    """Held-out digits of scikit-learn, (360, 64) from 0 to 1, and their labels."""
    datasets = pytest.importorskip("sklearn.datasets", reason="needs scikit-learn")
    images, labels = datasets.load_digits(return_X_y=True)
    held_out = np.random.default_rng(0).permutation(len(labels))[:360]
    return images[held_out] / 16, labels[held_out]


def numbers(text, kind):
    return np.frombuffer(base64.b64decode(text), dtype=kind).astype(np.float64)


@pytest.fixture(scope="module")
def posterior(content):
    """The page's network in torch, with the page's statistics as its posterior."""
    layers = []
    for place, (inputs, outputs) in enumerate(zip((1, *content["widths"]), content["widths"], strict=False)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if place else []
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * content["widths"][-1], 10)).double()
    with torch.no_grad():
        matrices = [layer for layer in network if isinstance(layer, nn.Conv2d | nn.Linear)]
        for layer, matrix in zip(matrices, content["matrices"], strict=True):
            whole = numbers(matrix["values"], np.int8).reshape(len(layer.weight), -1)
            scaled = whole * numbers(matrix["scale"], "<f4")[:, None]
            layer.weight.copy_(torch.tensor(scaled).view_as(layer.weight))
        matrices[-1].bias.copy_(torch.tensor(numbers(content["bias"], "<f4")))
        norms = [layer for layer in network if isinstance(layer, nn.BatchNorm2d)]
        mean, log_var = torch.tensor(numbers(content["location"], "<f4")).chunk(2)
        for norm, values, m, v in zip(
            norms, content["norms"], mean.split(content["widths"]), log_var.split(content["widths"]), strict=True
        ):
            norm.weight.copy_(torch.tensor(numbers(values[0], "<f4")))
            norm.bias.copy_(torch.tensor(numbers(values[1], "<f4")))
            norm.running_mean.copy_(m)
            norm.running_var.copy_(v.exp() - norm.eps)
    unit = numbers(content["unit"], "<f4")
    deviations = torch.tensor(numbers(content["deviations"], np.int8).reshape(-1, len(unit)) * unit)
    x = torch.rand(64, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    fitted = bn.MCBN(content["batchSize"], 2).fit(network.eval(), x, bn.Categorical(temperature=content["temperature"]))
    return dataclasses.replace(fitted, fluctuations=Empirical(deviations)).at_batch_size(content["effective"])


@pytest.fixture(scope="module")
def page(digits, tmp_path_factory):
    """The page's answers to the held-out digits, and to the shapes that it offers."""
    if NODE is None:
        pytest.skip("needs node: apt-get install nodejs")
    folder = tmp_path_factory.mktemp("digits")
    (folder / "images.json").write_text(json.dumps(digits[0][:ASKED].tolist()))
    (folder / "digits.mjs").write_text(SCRIPT)
    command = [NODE, str(folder / "digits.mjs"), str(FOLDER), str(folder / "images.json")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_probabilities_and_uncertainty_are_those_of_the_package(page, posterior, digits):
    x = torch.tensor(digits[0][:ASKED]).view(-1, 1, 8, 8)
    samples = len(posterior.fluctuations.deviations)
    prediction = posterior.predict(x, bn.MonteCarlo(samples))  # every batch once
    for name, expected in (
        ("probabilities", prediction.probs),
        ("entropy", prediction.entropy),
        ("mutualInformation", prediction.mutual_information),
    ):
        values = [answer[name] for answer in page["answers"]]
        np.testing.assert_allclose(values, expected.numpy(), rtol=1e-5, atol=1e-8, err_msg=name)


def test_the_network_is_as_good_as_its_file_says(posterior, digits, content):
    x = torch.tensor(digits[0]).view(-1, 1, 8, 8)
    labels = posterior.predict(x, bn.MonteCarlo(32)).label.numpy()
    assert (labels != digits[1]).mean() == pytest.approx(content["errors"][0])
    assert content["errors"][0] < 0.01


def test_drawn_digits_are_recognised_and_most_letters_are_uncertain(page, content):
    unsure = {shape["name"]: shape["entropy"] > page["limits"]["entropy"] for shape in page["shapes"]}
    labels = {shape["name"]: int(np.argmax(shape["probabilities"])) for shape in page["shapes"]}
    assert [labels[str(digit)] for digit in range(10)] == list(range(10))
    assert not any(unsure[str(digit)] for digit in range(10))
    assert all(unsure[letter] for letter in "HMXT")
    assert f"marks {100 * content['letters']:.0f} % of printed letters" in demo.PAGE.read_text("utf-8")
