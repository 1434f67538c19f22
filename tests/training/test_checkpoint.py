"""A training that is interrupted, by an error or by the kernel, ends as if it had not been."""

import copy
import os
import random
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, lr_scheduler
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bayesnorm.errors import BayesNormError
from bayesnorm.training.checkpoint import Checkpoint

from .interrupted_training import EPOCHS, Stop, call, network, rows
from .small_training import DEVICES, weights


class Jittered(Dataset):
    def __len__(self):
        return 43

    def __getitem__(self, row):
        x, y = rows()
        noise = random.random() + np.random.rand() + torch.rand(()).item()  # noqa: NPY002
        return x[row] + 0.1 * noise, y[row]


def told(history):
    return history.epochs, history.losses, history.scores


def warm_up_and_cool_down(optimiser):
    warm = lr_scheduler.LinearLR(optimiser, 0.1, total_iters=3)
    return lr_scheduler.SequentialLR(optimiser, [warm, lr_scheduler.ExponentialLR(optimiser, 0.9)], [3])


SETTINGS = {
    "Adam": {},
    "decay and penalty": {
        "weight_decay": 0.1,
        "penalties": [lambda model, epoch: model[0].bias.square().sum() * epoch],
    },
    "AMSGrad": {"optimiser": partial(AdamW, lr=1e-2, amsgrad=True)},
    "momentum": {"optimiser": partial(SGD, lr=0.1, momentum=0.9)},
    "groups": {
        "optimiser": lambda all_: Adam([{"params": all_[:2], "lr": 0.1}, {"params": all_[2:], "betas": (0.5, 0.6)}])
    },
    "LBFGS": {"optimiser": partial(torch.optim.LBFGS, lr=0.05, max_iter=3)},
    "milestones": {"schedule": partial(lr_scheduler.MultiStepLR, milestones=[2, 2, 5], gamma=0.3)},
    "function": {"schedule": partial(lr_scheduler.LambdaLR, lr_lambda=lambda epoch: 0.9**epoch)},
    "chain": {"schedule": warm_up_and_cool_down},
    "one cycle": {"schedule": partial(lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=EPOCHS + 1)},
    "plateau": {
        "schedule": partial(lr_scheduler.ReduceLROnPlateau, patience=0, threshold=1.0),
        "validation": rows(20, 1),
    },
    "best kept": {"optimiser": partial(SGD, lr=0.3), "validation": rows(20, 1), "evaluate_every": 2},
    "early stop": {"optimiser": partial(SGD, lr=0.5), "validation": rows(20, 1), "patience": 2, "epochs": 40},
    "loader": {"pairs": DataLoader(TensorDataset(*rows()), 8, shuffle=True), "batch_size": None},
    "random transform": {"pairs": Jittered()},
    "mixed precision": {"mixed_precision": True},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SETTINGS)
def test_resumed_is_uninterrupted(name, device, tmp_path):
    options, path = SETTINGS[name], tmp_path / "run.safetensors"
    whole = network().to(device)
    expected = call(whole, **options)
    for stop_after in (1, 3):  # interrupted in the epoch after it, twice
        with pytest.raises(Stop):
            call(network().to(device), path, stop_after, **options)
    other = network().to(device)
    torch.nn.init.zeros_(other[0].weight)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        result = call(other, path, **options)
    if device == "cpu":
        assert torch.equal(weights(other), weights(whole))
        assert told(result) == told(expected)
    else:
        torch.testing.assert_close(weights(other), weights(whole), rtol=1e-4, atol=1e-5)
    assert not other.training
    again = network().to(device)
    repeated = call(again, path, stop_after=0, **options)
    assert torch.equal(weights(again), weights(other)), "a run that is over comes back at once"
    assert (told(repeated), repeated.seconds) == (told(result), result.seconds)
    assert os.listdir(tmp_path) == [path.name]


def test_an_interrupted_epoch_is_lost_and_no_more(tmp_path):
    seen = []
    with pytest.raises(Stop):
        call(network(), tmp_path / "run", stop_after=4)
    call(network(), tmp_path / "run", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(4, 7), (5, 7), (6, 7), (7, 7)]


def test_tensors_outside_the_network_are_kept_too(tmp_path):
    def run(path=None, stop_after=None):
        model, noise = network(), torch.zeros((), requires_grad=True)
        parameters = [*model.parameters(), noise]

        def loss(f, y):
            return ((f - y).square() / noise.exp() + noise).mean()

        call(model, path, stop_after, loss=loss, parameters=parameters, validation=rows(20, 1))
        return noise.item()

    with pytest.raises(Stop):
        run(tmp_path / "run", 3)
    assert run(tmp_path / "run") == run() != 0


class Shaken(nn.Module):
    """A network that samples from Python's and NumPy's own generators."""

    def __init__(self):
        super().__init__()
        self.body = network()

    def forward(self, x):
        return self.body(x) * (1 + 0.1 * random.random() + 0.1 * np.random.rand() + 0.1 * random.gauss())  # noqa: NPY002


def test_a_network_may_draw_from_any_generator(tmp_path):
    whole, model = Shaken(), Shaken()
    expected = call(whole)
    with pytest.raises(Stop):
        call(Shaken(), tmp_path / "run", 3)
    result = call(model, tmp_path / "run")
    assert torch.equal(weights(model), weights(whole))
    assert told(result) == told(expected)


def test_more_epochs_may_follow(tmp_path):
    whole, parts = network(), network()
    expected = call(whole)
    call(parts, tmp_path / "run", epochs=3)
    result = call(network(), tmp_path / "run", epochs=3)
    assert result.stopped == 3
    result = call(parts, tmp_path / "run")
    assert torch.equal(weights(parts), weights(whole))
    assert told(result) == told(expected)
    start = network()
    with pytest.raises(BayesNormError, match=r"epochs is 2, but the checkpoint already has 7"):
        call(start, tmp_path / "run", epochs=2)
    assert torch.equal(weights(start), weights(network()))


def test_checkpoints_are_written_at_intervals_and_at_the_end(tmp_path, monkeypatch):
    written = []
    whole = Checkpoint.write
    monkeypatch.setattr(Checkpoint, "write", lambda self, state: written.append(state) or whole(self, state))
    for every, times in ((0, EPOCHS), (1000, 1)):
        written.clear()
        call(network(), tmp_path / f"{every}", checkpoint_every=every)
        assert len(written) == times


@pytest.mark.skipif(torch.cuda.is_available(), reason="DataParallel would move it")
def test_a_wrapper_around_the_network_does_not_matter(tmp_path):
    whole, model = network(), network()
    call(whole)
    with pytest.raises(Stop):
        call(model, tmp_path / "run", 3)
    call(nn.DataParallel(model), tmp_path / "run")
    assert torch.equal(weights(model), weights(whole))


KILLED = """
import os, signal, sys, time
from pathlib import Path
import torch
from torch import nn
from torch.nn.functional import mse_loss
from bayesnorm.training import train

torch.set_num_threads(1)
path = Path(sys.argv[1])

def run(checkpoint=path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 1))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(43, 3, generator=generator)
    history = train(model, x, x[:, :1], loss=mse_loss, epochs=100, batch_size=8, checkpoint_every=0,
                    validation=(x, x[:, :1]), checkpoint=checkpoint)
    return model, history

whole, expected = run(None)
for kill in range(4):
    before = path.stat().st_mtime_ns if path.exists() else 0
    child = os.fork()
    if child == 0:
        run()
        os._exit(0)
    while not path.exists() or path.stat().st_mtime_ns == before:
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "it ended by itself"
        time.sleep(0.0003)
    time.sleep(0.0007 * kill)  # in the middle of anything
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "it ended before it could be killed"
resumed, found = run()
for name, value in whole.state_dict().items():
    assert torch.equal(value, resumed.state_dict()[name]), name
assert (found.losses, found.scores, found.epochs) == (expected.losses, expected.scores, expected.epochs)
print("same")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_by_the_kernel_at_any_moment(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "run")],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},  # a process that has differentiated on a GPU cannot fork
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "same\n", done.stderr


def test_a_copy_of_the_state_not_the_state(tmp_path):
    """What is kept as best is not moved by later steps."""
    model = network()
    start = copy.deepcopy(model)
    scores = iter([0.0, 1.0, 1.0])
    call(model, tmp_path / "run", epochs=3, evaluate=lambda _: next(scores))
    call(start, epochs=1)
    assert torch.equal(weights(model), weights(start))
