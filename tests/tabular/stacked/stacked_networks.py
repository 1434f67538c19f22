"""What tests of stacks share: networks with rows of their own, trained alone and together."""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn.functional import mse_loss

from bayesnorm.tabular.stacked import HalfSquaredError, Skip, Stack, stacked_outputs, train_stacked
from bayesnorm.training import train
from experiments.networks import paper_mlp
from experiments.stacked_networks import standardised_rows

INPUTS = 4
COUNTS = 90, 90, 75, 90, 90
SEEDS, DECAYS, RATES = [3, 4, 3, 3, 3], [0.0, 1e-2, 1e-4, 1e-1, 0.0], [0.1, 0.3, 0.0, 0.1, 0.2]
"""Networks 0 and 3 draw the same orders and masks; 4 the same orders, but masks of its own."""


def batchnorm(_rate, seed):
    return paper_mlp(INPUTS, hidden=(12, 10), seed=seed)


def dropout(rate, seed):
    torch.manual_seed(seed)
    layers = nn.Dropout(rate), nn.Linear(INPUTS, 12), nn.ReLU(), nn.Dropout(rate), nn.Linear(12, 1)
    return nn.Sequential(*layers)


def mixed(rate, seed):
    """All kinds of layers, in an unusual order, nested."""
    torch.manual_seed(seed)
    inner = nn.Sequential(nn.ReLU(), nn.Linear(12, 10, bias=False), nn.BatchNorm1d(10, momentum=0.3))
    head = nn.Sequential(nn.Dropout(rate), nn.ReLU(), nn.Linear(10, 1))
    return nn.Sequential(nn.BatchNorm1d(INPUTS), nn.Linear(INPUTS, 12), nn.ReLU(), inner, head)


def skipping(rate, seed):
    """Ways around layers, one inside another."""
    torch.manual_seed(seed)
    inner = Skip(nn.Linear(10, 10, bias=False), nn.BatchNorm1d(10), nn.ReLU())
    outer = Skip(nn.Linear(10, 10), nn.Dropout(rate), inner, nn.ReLU())
    return nn.Sequential(nn.Linear(INPUTS, 10, bias=False), nn.BatchNorm1d(10), nn.ReLU(), outer, nn.Linear(10, 1))


FAMILIES = {"batch norm": batchnorm, "dropout": dropout, "mixed": mixed, "ways around": skipping}


def data(n=100, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.randn(n, INPUTS, generator=generator, dtype=dtype) + 5
    noise = torch.randn(n, 1, generator=generator, dtype=dtype)
    return x, 10 * torch.sin(x[:, :1]) + x[:, 1:2] + 0.3 * noise


def task(family="batch norm", dtype=torch.float32, counts=COUNTS):
    """Networks of different rates, and rows of different numbers of them."""
    networks = [FAMILIES[family](rate, i).to(dtype) for i, rate in zip(range(len(counts)), RATES, strict=False)]
    generator = torch.Generator().manual_seed(1)
    x, y = data(dtype=dtype)
    picked = [torch.randperm(100, generator=generator) for _ in counts]
    rows = standardised_rows(x, y, [p[:n] for p, n in zip(picked, counts, strict=True)])
    held_out = standardised_rows(x, y, [p[n:] for p, n in zip(picked, counts, strict=True)], rows.scales)
    return networks, rows, held_out


def rows_of_network(rows, i):
    """One network's rows, in its units."""
    mine = rows.take(torch.tensor([i]))
    n = int(mine.lengths[0])
    return mine.inputs()[0, :n], mine.targets()[0, :n]


def in_target_units(f, rows, i):
    """Outputs of one network, in the units of its targets."""
    return f * rows.scales.y_std[i] + rows.scales.y_mean[i]


@torch.no_grad()
def network_in_target_units(stack, rows, i):
    """One of the networks, whose last layer brings outputs into the units of its targets."""
    network = stack.network(i)
    network[-1].weight *= rows.scales.y_std[i]
    network[-1].bias.copy_(in_target_units(network[-1].bias, rows, i))
    return network


def half_mse(f, y):
    return 0.5 * mse_loss(f, y)


def alone(network, rows, i, **options):
    model = copy.deepcopy(network)
    options = {"loss": half_mse, "batch_size": 16, "seed": SEEDS[i], "weight_decay": DECAYS[i], **options}
    return model, train(model, *rows_of_network(rows, i), **options)


def together(networks, rows, **options):
    count = len(networks)
    options = {"batch_size": 16, "seeds": SEEDS[:count], "weight_decay": DECAYS[:count], **options}
    stack = Stack.from_networks(networks)
    return stack, trained(stack, rows, **options)


SQUARED = HalfSquaredError()


def trained(stack, rows, validation=None, loss=SQUARED, **options):
    """Train a stack; the loss on `validation` is the score."""

    def evaluate(now, members):
        held_out = validation.take(members)
        return held_out.mean(loss(stacked_outputs(now, held_out), held_out.targets()))

    if validation is not None:
        validation = validation.to(stack.device, stack.dtype)
        options["evaluate"] = evaluate
    return train_stacked(stack, rows, **{"loss": loss, "seeds": [0] * len(stack), "batch_size": 16, **options})


def furthest(model, expected):
    """The largest relative difference of a tensor."""
    result, state = model.state_dict(), expected.state_dict()
    return max(float((result[k].double() - v).norm() / v.double().norm().clamp_min(1e-8)) for k, v in state.items())


def global_state():
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), torch.get_num_threads()  # noqa: NPY002
