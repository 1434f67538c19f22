"""Checkpoints: files that are another run's, broken or no checkpoint, and what one holds."""

import json
import os
import struct
import tempfile
from collections import Counter
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import SGD, lr_scheduler

from bayesnorm import files
from bayesnorm.errors import BayesNormError, FileFormatError
from bayesnorm.training.checkpoint import Checkpoint

from .interrupted_training import Stop, call, network, rows
from .small_training import weights


def narrow():
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 1))


OTHERS = {
    "network": (narrow, {}, r"model\.0\.weight is \(6, 3\) torch.float32 there and \(5, 3\) torch.float32 here"),
    "dtype": (lambda: network().double(), {}, r"model\.0\.weight is .*float32 there and .*float64 here"),
    "seed": (network, {"seed": 4}, "seed is 3 there and 4 here"),
    "batch size": (network, {"batch_size": 9}, "batch_size is 8 there and 9 here"),
    "rows": (network, {"pairs": rows(42)}, r"data is x \(43, 3\).* there and x \(42, 3\)"),
    "values": (network, {"pairs": rows(43, 5)}, r"data is x \(43, 3\), y \(43, 1\), sha256 \w+ there and"),
    "optimiser": (network, {"optimiser": partial(SGD, lr=0.1)}, "optimiser is Adam .* there and SGD"),
    "rate": (network, {"learning_rate": 0.1}, 'optimiser is Adam .*"lr": 0.001.* there and Adam .*"lr": 0.1'),
    "schedule": (network, {"schedule": partial(lr_scheduler.StepLR, step_size=3)}, "schedule is None there and StepLR"),
    "decay": (network, {"weight_decay": 0.1}, "weight_decay is 0.0 there and 0.1 here"),
    "penalties": (network, {"penalties": [lambda model, epoch: 0]}, "penalties is 0 there and 1 here"),
    "patience": (network, {"patience": 3, "validation": rows(9)}, "evaluate_every is None there and 1 here"),
}


def test_what_is_trained_must_be_the_same(tmp_path):
    path = tmp_path / "run"

    def run(*names):
        model = network()
        return call(model, path, epochs=len(names), parameters=[getattr(model[1], name) for name in names])

    run("weight")
    with pytest.raises(FileFormatError, match=r"parameters is model\.1\.weight there and model\.1\.bias here"):
        run("bias")
    assert run("weight").stopped == 1


def test_scores_on_other_rows_do_not_compare(tmp_path):
    path = tmp_path / "run"
    call(network(), path, epochs=1, validation=rows(9, 1))
    with pytest.raises(FileFormatError, match=r"validation is x \(9, 3\).* there and x \(9, 3\), .* here"):
        call(network(), path, validation=rows(9, 2))
    assert call(network(), path, validation=rows(9, 1)).stopped == 7


@pytest.mark.parametrize("case", OTHERS)
def test_another_runs_checkpoint_is_refused(case, tmp_path):
    make, options, message = OTHERS[case]
    path = tmp_path / "run"
    call(network(), path, epochs=1)
    content, model, before = path.read_bytes(), make(), torch.get_rng_state()
    original = weights(model).clone()
    with pytest.raises(FileFormatError, match=rf"(?s)checkpoint: .*run is from another run: .*{message}.*another path"):
        call(model, path, **options)
    assert torch.equal(weights(model), original)
    assert torch.equal(torch.get_rng_state(), before)
    assert path.read_bytes() == content


def settings_in(path):
    size = struct.unpack("<Q", path.read_bytes()[:8])[0]
    return json.loads(json.loads(path.read_bytes()[8 : 8 + size])["__metadata__"]["config"])["settings"]


def foreign(content):
    """A file in the right format with another content."""
    header = json.dumps({"__metadata__": {"format": "bayesnorm-training", "version": "1", "config": content}}).encode()
    return struct.pack("<Q", len(header)) + header


BROKEN = {
    "truncated": lambda whole: whole[: len(whole) // 2],
    "no JSON": lambda whole: foreign("{"),
    "another JSON": lambda whole: foreign("[1, 2]"),
    "tensors missing": lambda whole: foreign('{"settings": {}, "state": {"tensor": "0 state"}}'),
    "settings that are none": lambda whole: foreign('{"settings": [1], "state": 1}'),
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
    with pytest.raises(FileFormatError, match=r"checkpoint does not contain a complete run \(path: history is"):
        call(network(), path)


FORGED = {
    "an optimiser": lambda state: state["optimiser"].update(param_groups="ab"),
    "a shape": lambda state: state["tensors"].update({"model.4.bias": torch.zeros(1, 1)}),
    "a number for all": lambda state: state["tensors"].update({"model.0.weight": torch.tensor(1.0)}),
    "a tensor missing": lambda state: state["tensors"].pop("model.4.bias"),
    "a text": lambda state: state["tensors"].update({"model.4.bias": "x"}),
    "the best missing": lambda state: state.update(best={}),
    "a generator": lambda state: state.update(generators=[torch.zeros(3)] * 2),
    "its history": lambda state: state.update(history={"losses": 3}),
    "losses of text": lambda state: state["history"].update(losses=["x"]),
    "a wait of text": lambda state: state.update(waited="x"),
    "NaN": lambda state: state["tensors"]["model.0.weight"].fill_(float("nan")),
    "a dtype": lambda state: state["tensors"].update({"model.4.bias": torch.zeros(1, dtype=torch.int64)}),
    "a moment": lambda state: state["optimiser"]["state"][0].update(exp_avg=torch.zeros(2)),
    "no moment": lambda state: state["optimiser"]["state"][0].pop("exp_avg"),
    "a learning rate": lambda state: state["optimiser"]["param_groups"][0].update(lr="x"),
    "another generator": lambda state: state.update(python="x"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_state_is_told_and_leaves_the_network_alone(kind, tmp_path):
    path, model = tmp_path / "run", network()
    call(network(), path, epochs=1)
    store = Checkpoint(path, settings_in(path))
    state = store.read()
    FORGED[kind](state)
    store.write(state)
    with pytest.raises(FileFormatError, match="checkpoint does not contain a complete run"):
        call(model, path)
    assert torch.equal(weights(model), weights(network()))


def test_a_posterior_is_no_checkpoint(tmp_path):
    files.write(tmp_path / "run", {"a": torch.zeros(1)}, {})
    with pytest.raises(FileFormatError, match=r"not a bayesnorm-training file .*'bayesnorm-posterior'"):
        call(network(), tmp_path / "run")


def test_the_folder_must_exist(tmp_path):
    with pytest.raises(FileFormatError, match=r"checkpoint: the folder .*nowhere does not exist"):
        call(network(), tmp_path / "nowhere" / "run")
    with pytest.raises(FileFormatError, match=r"checkpoint: .* is a folder"):
        call(network(), tmp_path)
    with pytest.raises(FileFormatError, match=r"checkpoint must be the path of a file, got float"):
        call(network(), 1.5)


def test_a_run_that_is_over_is_only_read(tmp_path, monkeypatch):
    path = tmp_path / "run"
    expected = call(network(), path)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: pytest.fail("it need not be writable"))
    assert call(network(), path).losses == expected.losses


def test_a_failed_write_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "run"
    with pytest.raises(Stop):
        call(network(), path, 3)
    content = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(FileFormatError, match=r"checkpoint: could not write .*run: disk full"):
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
    content = store.read()
    assert list(content) == list(state)
    assert content["numbers"] == state["numbers"]
    assert [type(value) for value in content["numbers"]] == [type(value) for value in state["numbers"]]
    assert content["empty"] == state["empty"]
    assert [type(value) for value in content["empty"]] == [dict, list, tuple, Counter]
    assert isinstance(content[0]["nested"], tuple)
    for old, new in zip(
        [*state[0]["nested"], *state["kinds"]], [*content[0]["nested"], *content["kinds"]], strict=True
    ):
        assert torch.equal(old, new)
        assert old.dtype == new.dtype
    with pytest.raises(BayesNormError, match=r"checkpoint: state\.a\.0 is of type object, which cannot be saved"):
        store.write({"a": [object()]})


def test_a_broken_network_is_never_written(tmp_path):
    """A step to infinity in the last batch of an epoch shows in no loss of that epoch."""
    path = tmp_path / "run"
    schedule = partial(lr_scheduler.LambdaLR, lr_lambda=lambda epoch: float("inf") if epoch == 1 else 1.0)
    with pytest.raises(BayesNormError, match="finite until the end of epoch 2"):
        call(network(), path, optimiser=partial(SGD, lr=0.01), schedule=schedule, batch_size=43)
    assert len(Checkpoint(path, settings_in(path)).read()["history"]["losses"]) == 1
