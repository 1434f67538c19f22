"""A training that is interrupted, by an error or by the kernel, ends as if it had not been."""

from __future__ import annotations

import copy
import json
import os
import random
import struct
import subprocess
import sys
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim import SGD, Adam, AdamW, lr_scheduler
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bayesnorm import files
from bayesnorm.errors import BayesNormError, FileFormatError
from bayesnorm.training import train
from bayesnorm.training.checkpoint import Checkpoint

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]
EPOCHS = 7


class Stop(Exception):
    """What interrupts."""


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 1))


def rows(n=43, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator)
    return x, x[:, :1] - x[:, 1:2] + 0.1 * torch.randn(n, 1, generator=generator)


class Jittered(Dataset):
    def __len__(self):
        return 43

    def __getitem__(self, row):
        x, y = rows()
        noise = random.random() + np.random.rand() + torch.rand(()).item()  # noqa: NPY002
        return x[row] + 0.1 * noise, y[row]


def weights(model):
    return torch.cat([value.detach().flatten().double().cpu() for value in model.state_dict().values()])


def call(model, path=None, stop_after=None, data=None, **options):
    """Train, perhaps up to an interruption."""

    def on_epoch(epoch, _model):
        if stop_after is not None and epoch > stop_after:
            raise Stop

    options = {"loss": mse_loss, "epochs": EPOCHS, "batch_size": 8, "seed": 3, "checkpoint_every": 0, **options}
    return train(model, data or rows(), on_epoch=on_epoch, checkpoint=path, **options)


def told(history):
    return history.epochs, history.losses, history.scores


def warm_up_and_cool_down(optimiser):
    warm = lr_scheduler.LinearLR(optimiser, 0.1, total_iters=3)
    return lr_scheduler.SequentialLR(optimiser, [warm, lr_scheduler.ExponentialLR(optimiser, 0.9)], [3])


SETTINGS = {
    "Adam": {},
    "decay and penalty": {
        "weight_decay": 0.1,
        "penalties": [lambda model, at: model[0].bias.square().sum() * at.epoch],
    },
    "AMSGrad": {"optimiser": partial(AdamW, lr=1e-2, amsgrad=True)},
    "momentum": {"optimiser": partial(SGD, lr=0.1, momentum=0.9)},
    "nothing remembered": {"optimiser": partial(SGD, lr=0.1)},
    "groups": {
        "optimiser": lambda all_: Adam([{"params": all_[:2], "lr": 0.1}, {"params": all_[2:], "betas": (0.5, 0.6)}])
    },
    "LBFGS": {"optimiser": partial(torch.optim.LBFGS, lr=0.05, max_iter=3)},
    "milestones": {"schedule": partial(lr_scheduler.MultiStepLR, milestones=[2, 2, 5], gamma=0.3)},
    "function": {"schedule": partial(lr_scheduler.LambdaLR, lr_lambda=lambda epoch: 0.9**epoch)},
    "chain": {"schedule": warm_up_and_cool_down},
    "one cycle": {
        "schedule": partial(lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=5 * EPOCHS),
        "schedule_every": "step",
    },
    "plateau": {
        "schedule": partial(lr_scheduler.ReduceLROnPlateau, patience=0, threshold=1.0),
        "validation": rows(20, 1),
    },
    "best kept": {"optimiser": partial(SGD, lr=0.3), "validation": rows(20, 1), "evaluate_every": 2},
    "early stop": {"optimiser": partial(SGD, lr=0.5), "validation": rows(20, 1), "patience": 2, "epochs": 40},
    "loader": {"data": DataLoader(TensorDataset(*rows()), 8, shuffle=True), "batch_size": None},
    "random transform": {"data": Jittered()},
    "scaled gradients": {"mixed_precision": torch.float16},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SETTINGS)
def test_resumed_is_uninterrupted(name, device, tmp_path):
    options, path = SETTINGS[name], tmp_path / "run.safetensors"
    whole = network().to(device)
    expected = call(whole, **options)
    for stop_after in (1, 2, 3):  # interrupted in the epoch after it, three times over
        with pytest.raises(Stop):
            call(network().to(device), path, stop_after, **options)
    other = network().to(device)
    torch.nn.init.zeros_(other[0].weight)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        found = call(other, path, **options)
    if device == "cpu":
        assert torch.equal(weights(other), weights(whole))
        assert told(found) == told(expected)
    else:
        torch.testing.assert_close(weights(other), weights(whole), rtol=1e-4, atol=1e-5)
    assert not other.training
    again = network().to(device)
    repeated = call(again, path, stop_after=0, **options)
    assert torch.equal(weights(again), weights(other)), "a run that is over comes back at once"
    assert (told(repeated), repeated.seconds) == (told(found), found.seconds)
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


def test_more_epochs_may_follow(tmp_path):
    whole, parts = network(), network()
    expected = call(whole)
    call(parts, tmp_path / "run", epochs=3)
    found = call(network(), tmp_path / "run", epochs=3)
    assert found.stopped == 3
    found = call(parts, tmp_path / "run")
    assert torch.equal(weights(parts), weights(whole))
    assert told(found) == told(expected)
    start = network()
    with pytest.raises(BayesNormError, match=r"epochs: 2 were asked for, but .* holds 7 already"):
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


def narrow():
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 1))


OTHERS = {
    "network": (narrow, {}, r"model\.0\.weight is \(6, 3\) torch.float32 there and \(5, 3\) torch.float32 here"),
    "dtype": (lambda: network().double(), {}, r"model\.0\.weight is .*float32 there and .*float64 here"),
    "seed": (network, {"seed": 4}, "seed is 3 there and 4 here"),
    "batch size": (network, {"batch_size": 9}, "batch_size is 8 there and 9 here"),
    "rows": (network, {"data": rows(42)}, r"data is x \(43, 3\).* there and x \(42, 3\)"),
    "values": (network, {"data": rows(43, 5)}, r"data is x \(43, 3\), y \(43, 1\), sha256 \w+ there and"),
    "optimiser": (network, {"optimiser": partial(SGD, lr=0.1)}, "optimiser is Adam .* there and SGD"),
    "rate": (network, {"learning_rate": 0.1}, 'optimiser is Adam .*"lr": 0.001.* there and Adam .*"lr": 0.1'),
    "schedule": (network, {"schedule": partial(lr_scheduler.StepLR, step_size=3)}, "schedule is None there and StepLR"),
    "decay": (network, {"weight_decay": 0.1}, "weight_decay is 0.0 there and 0.1 here"),
    "penalties": (network, {"penalties": [lambda model, at: 0]}, "penalties is 0 there and 1 here"),
    "patience": (network, {"patience": 3, "validation": rows(9)}, "evaluate_every is None there and 1 here"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_runs_checkpoint_is_refused(case, tmp_path):
    make, options, message = OTHERS[case]
    path = tmp_path / "run"
    call(network(), path, epochs=1)
    content, model, before = path.read_bytes(), make(), torch.get_rng_state()
    kept = weights(model).clone()
    with pytest.raises(FileFormatError, match=rf"(?s)checkpoint: .*run is another run's: .*{message}.*another path"):
        call(model, path, **options)
    assert torch.equal(weights(model), kept)
    assert torch.equal(torch.get_rng_state(), before)
    assert path.read_bytes() == content


def settings_in(path):
    size = struct.unpack("<Q", path.read_bytes()[:8])[0]
    return json.loads(json.loads(path.read_bytes()[8 : 8 + size])["__metadata__"]["content"])["settings"]


def foreign(content):
    """A file in the right format with another content."""
    header = json.dumps({"__metadata__": {"format": "bayesnorm-training", "version": "1", "content": content}}).encode()
    return struct.pack("<Q", len(header)) + header


BROKEN = {
    "empty": lambda whole: b"",
    "text": lambda whole: b"hello",
    "truncated": lambda whole: whole[: len(whole) // 2],
    "last byte": lambda whole: whole[:-1],
    "no JSON": lambda whole: foreign("{"),
    "another JSON": lambda whole: foreign("[1, 2]"),
    "tensors missing": lambda whole: foreign('{"settings": {}, "state": {"tensor": "0 state"}}'),
    "version": lambda whole: whole.replace(b'"version":"1"', b'"version":"9"'),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_told(kind, tmp_path):
    path = tmp_path / "run"
    call(network(), path, epochs=1)
    path.write_bytes(BROKEN[kind](path.read_bytes()))
    with pytest.raises(FileFormatError, match=r"(?s)checkpoint: .*run .*delete it to train from the start"):
        call(network(), path)


def test_a_state_without_its_parts_is_told(tmp_path):
    path = tmp_path / "run"
    call(network(), path, epochs=1)
    Checkpoint(path, settings_in(path)).write({"history": {}, "tensors": {}})
    with pytest.raises(FileFormatError, match=r"checkpoint: does not hold a whole run \(KeyError"):
        call(network(), path)


def test_a_posterior_is_no_checkpoint(tmp_path):
    files.write(tmp_path / "run", {"a": torch.zeros(1)}, {})
    with pytest.raises(FileFormatError, match=r"no training checkpoint .*'bayesnorm-posterior'"):
        call(network(), tmp_path / "run")


def test_the_folder_must_exist(tmp_path):
    with pytest.raises(FileFormatError, match=r"checkpoint: the folder .*nowhere does not exist"):
        call(network(), tmp_path / "nowhere" / "run")
    with pytest.raises(FileFormatError, match=r"checkpoint: .* is a folder"):
        call(network(), tmp_path)


def test_a_failed_write_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "run"
    with pytest.raises(Stop):
        call(network(), path, 3)
    content = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            call(network(), path)
    assert path.read_bytes() == content
    whole, model = network(), network()
    call(whole)
    call(model, path)
    assert torch.equal(weights(model), weights(whole))


def test_any_nesting_comes_back(tmp_path):
    store = Checkpoint(tmp_path / "state", {"a": "b"})
    shared = torch.arange(6.0).view(2, 3)
    state = {
        "numbers": [1, 2.5, float("inf"), float("-inf"), 0.1 + 0.2, True, None, "text", 2**70],
        0: {"nested": (shared, shared.t(), shared[0], torch.tensor(3.0), torch.zeros(0, 2))},
        "kinds": [torch.tensor([True]), torch.arange(3), torch.ones(2, dtype=torch.bfloat16)],
        "empty": [{}, [], (), Counter([3, 3])],
    }
    assert store.read() is None
    store.write(state)
    found = store.read()
    assert list(found) == list(state)
    assert found["numbers"] == state["numbers"]
    assert [type(value) for value in found["numbers"]] == [type(value) for value in state["numbers"]]
    assert found["empty"] == state["empty"]
    assert [type(value) for value in found["empty"]] == [dict, list, tuple, Counter]
    assert isinstance(found[0]["nested"], tuple)
    for old, new in zip([*state[0]["nested"], *state["kinds"]], [*found[0]["nested"], *found["kinds"]], strict=True):
        assert torch.equal(old, new)
        assert old.dtype == new.dtype
    with pytest.raises(BayesNormError, match=r"checkpoint: state\.a\.0 is object, which no file can hold"):
        store.write({"a": [object()]})


def test_a_broken_network_is_never_written(tmp_path):
    """A step to infinity in the last batch of an epoch shows in no loss of that epoch."""
    path = tmp_path / "run"
    schedule = partial(lr_scheduler.LambdaLR, lr_lambda=lambda step: float("inf") if step == 9 else 1.0)
    with pytest.raises(BayesNormError, match="finite to the end of epoch 2"):
        call(network(), path, optimiser=partial(SGD, lr=0.01), schedule=schedule, schedule_every="step")
    assert len(Checkpoint(path, settings_in(path)).read()["history"]["losses"]) == 1


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
for kill in range(6):
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
