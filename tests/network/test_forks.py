"""A process that is forked while a thread predicts: the child predicts the same, and finds nothing changed."""

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import bayesnorm as bn
from bayesnorm.network import locks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))

# Seconds after which a child that hangs is ended, and the test fails.
PATIENCE = 20


class Remembers(nn.Module):
    """Counts its calls; in the process that it was made in, a forward may be told to wait."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(4, 32), nn.BatchNorm1d(32), nn.Linear(32, 1)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        if WAITING is not None and os.getpid() == WAITING.process:
            WAITING.arrived.set()
            WAITING.go_on.wait(PATIENCE)
        return self.head(torch.relu(self.norm(self.first(x))))


class Waiting:
    """Lets a forward of this process say that it is under way, and wait."""

    def __init__(self):
        self.process, self.arrived, self.go_on = os.getpid(), threading.Event(), threading.Event()


WAITING = None


def in_child(work):
    """Run `work` in a forked child; return None, or what went wrong there."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        try:
            work()
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-4000:])
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with open(reading) as said:
        wrong = said.read()
    _, status = os.waitpid(child, 0)
    return wrong or (f"the child ended with status {status}" if status else None)


@contextlib.contextmanager
def predicting(posterior):
    """Predict again and again in another thread meanwhile."""
    stop = threading.Event()

    def work():
        while not stop.is_set():
            posterior.predict(X)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_child_predicts_while_a_thread_of_its_parent_does():
    posterior = bn.MCBN(batch_size=8, states=16).fit(Remembers().eval(), X)
    engines = [None, bn.MonteCarlo(8, vectorize=False), bn.Delta()]
    expected = [posterior.predict(X, engine).mean for engine in engines]
    generator = torch.get_rng_state()

    def work():
        assert torch.equal(torch.get_rng_state(), generator)
        assert int(posterior.model.calls) == 0
        for engine, mean in zip(engines, expected, strict=True):
            assert torch.equal(posterior.predict(X, engine).mean, mean)

    with predicting(posterior):
        assert [in_child(work) for _ in range(10)] == [None] * 10


def test_a_child_puts_back_what_a_pass_that_never_ends_had_changed(monkeypatch):
    monkeypatch.setattr(locks, "FORK_WAITS", 0.01)
    posterior = bn.MCBN(batch_size=8, states=16).fit(Remembers().eval(), X)
    expected, generator = posterior.predict(X).mean, torch.get_rng_state()
    monkeypatch.setitem(globals(), "WAITING", Waiting())

    def work():
        assert torch.equal(torch.get_rng_state(), generator)
        assert int(posterior.model.calls) == 0
        assert torch.equal(posterior.predict(X).mean, expected)
        assert in_child(lambda: posterior.predict(X)) is None, "children have children"

    thread = threading.Thread(target=posterior.predict, args=(X,))
    thread.start()
    WAITING.arrived.wait()
    assert not torch.equal(torch.get_rng_state(), generator), "the pass has begun"
    assert in_child(work) is None
    WAITING.go_on.set()
    thread.join()
    assert int(posterior.model.calls) == 0


def test_a_forward_may_fork():
    class Forks(Remembers):
        def forward(self, x):
            assert in_child(lambda: Remembers.forward(self, x)) is None
            return super().forward(x)

    model = Forks().eval()
    expected = bn.deterministic(model, bn.Gaussian()).predict(X).mean
    assert torch.equal(expected, model(X).detach())


class Predicted(Dataset):
    """Rows that a posterior's predictions are part of, as in distillation."""

    def __init__(self, posterior):
        self.posterior = posterior

    def __len__(self):
        return 4

    def __getitem__(self, row):
        return self.posterior.predict(X[row : row + 2]).mean


def test_workers_of_a_loader_predict_while_a_thread_does():
    posterior = bn.MCBN(batch_size=8, states=16).fit(Remembers().eval(), X)
    expected = torch.stack([posterior.predict(X[row : row + 2]).mean for row in range(4)])
    context = multiprocessing.get_context("fork")
    with predicting(posterior):
        loader = DataLoader(
            Predicted(posterior), batch_size=2, num_workers=2, multiprocessing_context=context, timeout=PATIENCE
        )
        assert torch.equal(torch.cat([*loader]), expected)
