"""A trained CIFAR-10 ResNet-32 with uncertainty, beside the network as it was.

    BAYESNORM_DATA=path/to/data python examples/trained_resnet.py

The data folder holds cifar10/ (images) and resnet_cifar10/ (weights). Noise and effective batch size are chosen on the
first half of the test images, all scores are of the second half; statistics come from 5,000 training images.
Takes a few minutes on two cores; `--images 400` is a quick look.
"""

import argparse
import sys

import torch

import bayesnorm as bn
from bayesnorm import metrics
from bayesnorm.data import CIFAR10_CLASSES, load_cifar10, to_network_input
from bayesnorm.errors import DataNotFoundError, MissingExtraError
from bayesnorm.nets import load_cifar_resnet

parser = argparse.ArgumentParser(description="A trained ResNet-32 with uncertainty, beside the network as it was.")
parser.add_argument("--images", type=int, default=2000, help="test images, half of them to choose on (default: 2000)")
parser.add_argument("--samples", type=int, default=32, help="samples per prediction (default: 32)")
parser.add_argument("--states", type=int, default=256, help="batches whose statistics are kept (default: 256)")
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
uncertainty = predictive.mutual_information

# Only the last residual block is drawn: one pass, and the block once per draw. How far, validation images say.
late = bn.calibrate(posterior.at_layers(2), x_val, y_val, noise=False)
# As published: about the mean of the batch statistics instead of the network's own.
published = bn.MCBN(batch_size=16, states=options.states, center="batch").fit(model, x_train, bn.Categorical())
# The network itself, and with a temperature: the baseline that costs nothing. (Without fluctuations a posterior is the
# network, so that calibrate can find it.)
tempered = bn.calibrate(posterior.at_layers(1).at_batch_size(1e12), x_val, y_val, batch_size=False).likelihood
with torch.no_grad():
    logits = model(x_test)[None]

rows = {
    "softmax": bn.Categorical().predictive(logits),
    "softmax, temperature (val)": tempered.predictive(logits),
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
for row in uncertainty.argsort(descending=True)[:5].tolist():
    said, true = CIFAR10_CLASSES[int(predictive.label[row])], CIFAR10_CLASSES[int(y_test[row])]
    print(f"  image {half + row:4}: {uncertainty[row]:.2f}, {said} at {predictive.confidence[row]:.2f}; it is {true}")
