"""Thompson sampling: to explore as much as one doubts, act on one draw of the posterior.

A bandit on real data: a digit is shown, one of ten buttons is to be pressed, and only "right" or "wrong" comes back.
A network guesses each button's chance of being right from what was pressed before. One draw of MCBN's posterior is
one such network, and pressing *its* best button explores where samples disagree. Regret counts wrong buttons.

On this bandit the three policies come out level (392 ± 28, 368 ± 30 and 396 ± 23 wrong of 800 over five seeds):
exploring by samples is a matter of one line, not a promise.

    python examples/thompson_sampling.py [--rounds 800] [--seeds 5]
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch.nn.functional import binary_cross_entropy_with_logits

import bayesnorm as bn
from bayesnorm.nets import paper_mlp
from bayesnorm.training import train

BLOCK, BATCH, EPSILON = 40, 32, 0.1  # rounds between trainings; rows per training batch; epsilon-greedy's dice


def thompson(network, past, x, generator):
    posterior = bn.MCBN(BATCH, states=64).fit(network, past, bn.Gaussian(), seed=len(past))
    samples = posterior.outputs(len(x), x, seed=int(torch.randint(2**31, (), generator=generator)))
    return samples.diagonal().argmax(0)  # of (draw, round, button): round i under draw i, and under no other


def greedy(network, past, x, generator):
    return network(x).argmax(1)


def epsilon_greedy(network, past, x, generator):
    dice = torch.rand(len(x), generator=generator) < EPSILON
    return torch.where(dice, torch.randint(10, (len(x),), generator=generator), greedy(network, past, x, generator))


def loss(logits, seen):
    """Only the pressed button's outcome is known: `seen` holds (button, right or wrong)."""
    return binary_cross_entropy_with_logits(logits.gather(1, seen[:, :1].long()), seen[:, 1:])


def play(policy, rounds, seed):
    """Wrong buttons so far, round by round; the first block is pressed blindly."""
    generator = torch.Generator().manual_seed(seed)
    images, digits = map(torch.as_tensor, load_digits(return_X_y=True))
    order = torch.randperm(len(images), generator=generator)[:rounds]
    x, digits = images[order].float() / 16, digits[order]
    network = paper_mlp(64, 10, seed=seed)
    pressed = torch.randint(10, (BLOCK,), generator=generator)
    for start in range(BLOCK, rounds, BLOCK):
        past = x[:start]
        seen = torch.stack([pressed, pressed == digits[:start]], 1).float()
        train(network, past, seen, loss=loss, epochs=6, batch_size=BATCH, learning_rate=3e-3, seed=start)
        pressed = torch.cat([pressed, policy(network, past, x[start : start + BLOCK], generator)])
    return (pressed != digits).float().cumsum(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=800)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    at = [options.rounds * quarter // 4 - 1 for quarter in (1, 2, 3, 4)]
    print("wrong buttons after" + "".join(f"{i + 1:>14}" for i in at) + "  rounds")
    for policy in (thompson, epsilon_greedy, greedy):
        regret = torch.stack([play(policy, options.rounds, seed) for seed in range(options.seeds)])[:, at]
        error = regret.std(0) / options.seeds**0.5 if options.seeds > 1 else torch.zeros(4)
        cells = "".join(f"{f'{m:.0f} ± {e:.0f}':>14}" for m, e in zip(regret.mean(0), error, strict=True))
        print(f"{policy.__name__:19}{cells}")
