"""Add uncertainty to a trained CIFAR-10 ResNet-32, and compare it with the plain network and temperature scaling.

    BAYESNORM_DATA=path/to/data python -m examples.trained_resnet

It needs a checkout, because experiments/ holds the network and the loader of images. The data folder holds cifar10/
(images) and resnet_cifar10/ (weights). Temperature and effective batch size are chosen
on the first half of the test images, and scores are computed on the second half. Batch statistics come from 5,000
training images. It takes a few minutes on two cores; `--images 400` is faster.
"""

import argparse
import sys

import torch

import bayesnorm as bn
from bayesnorm import metrics
from bayesnorm.errors import MissingExtraError

try:
    from experiments.data import CIFAR10_CLASSES, DataNotFoundError, load_cifar10, to_network_input
    from experiments.networks import load_cifar_resnet
except ModuleNotFoundError:
    sys.exit("trained_resnet.py needs a checkout. Run in its folder: python -m examples.trained_resnet")

parser = argparse.ArgumentParser(
    description="Add uncertainty to a trained ResNet-32, and compare it with the plain network."
)
parser.add_argument(
    "--images",
    type=int,
    default=2000,
    help="number of test images; half of them choose, half are scored (default: 2000)",
)
parser.add_argument("--samples", type=int, default=32, help="samples per prediction (default: 32)")
parser.add_argument(
    "--states", type=int, default=256, help="number of batches whose statistics are kept (default: 256)"
)
options = parser.parse_args()

try:
    model = load_cifar_resnet(32)
    x_train = to_network_input(load_cifar10("train", 5000)[0])
    images, labels = load_cifar10("test", options.images)
except (DataNotFoundError, MissingExtraError) as error:
    sys.exit(f"trained_resnet.py: {error}")
x, y = to_network_input(images), torch.from_numpy(labels)
half = len(x) // 2
x_val, y_val, x_test, y_test = x[:half], y[:half], x[half:], y[half:]
engine = bn.MonteCarlo(samples=options.samples)

# Three lines for a classifier.
posterior = bn.MCBN(batch_size=16, states=options.states).fit(model, x_train, bn.Categorical())
predictive = posterior.predict(x_test, engine)
disagreement = predictive.mutual_information

# Sample only the last residual block: the rest runs once. Validation images choose the effective batch size M'.
late = bn.calibrate(posterior.at_layers(2), x_val, y_val, noise=False)
# As in the paper: centred on the mean of the batch statistics instead of the network's running statistics.
published = bn.MCBN(batch_size=16, states=options.states, center="batch").fit(model, x_train, bn.Categorical())
# The plain network, without and with a temperature: the baselines that cost one forward pass.
plain = bn.deterministic(model, bn.Categorical())
tempered = bn.calibrate(plain, x_val, y_val)

rows = {
    "softmax": plain.predict(x_test),
    "softmax, temperature (val)": tempered.predict(x_test),
    "MCBN, center=batch (paper)": published.predict(x_test, engine),
    "MCBN": predictive,
    f"MCBN, last block, M' = {late.batch_size:.3g} (val)": late.predict(x_test, engine),
}
print(f"{len(x_test)} test images, M = 16, {options.samples} samples, torch {torch.__version__}")
print(f"{'':34} accuracy     NLL    ECE")
for name, scored in rows.items():
    accuracy, nll, ece = (float(score(scored, y_test)) for score in (metrics.accuracy, metrics.nll, metrics.ece))
    print(f"{name:34} {accuracy:8.3f} {nll:7.3f} {ece:6.3f}")
print("\nThe samples disagree most about these test images (mutual information in nats):")
for row in disagreement.argsort(descending=True)[:5].tolist():
    label, true = CIFAR10_CLASSES[int(predictive.label[row])], CIFAR10_CLASSES[int(y_test[row])]
    confidence = predictive.confidence[row]
    print(f"  image {half + row:4}: {disagreement[row]:.2f}, predicted {label} ({confidence:.2f}), true class {true}")
