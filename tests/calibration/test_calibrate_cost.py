"""What `calibrate` costs: the part of the network before the sampled layers runs once for several candidates."""

import sys

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.calibration.sampled_outputs import mean_score

# Small networks often want the least or the largest batch size.
pytestmark = [
    pytest.mark.filterwarnings("ignore:batch_size. .* scored best:bayesnorm.BayesNormWarning"),
    pytest.mark.filterwarnings("ignore:Temperature scaling alone:bayesnorm.BayesNormWarning"),
]

candidates_module = sys.modules["bayesnorm.calibration.candidates"]


def noise(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Counting(nn.Module):
    """Counts the examples that pass; copies of a network share the counter."""

    def __init__(self):
        super().__init__()
        self.counter = []

    def forward(self, x):
        self.counter.append(len(x))
        return x.clone()

    def __deepcopy__(self, memo):
        return self


@pytest.fixture
def counted():
    """A posterior over the last layer of a classifier, validation data, and the counter of examples."""
    first = Counting()
    model = nn.Sequential(first, nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8), nn.BatchNorm1d(8))
    model = nn.Sequential(*model, nn.Tanh(), nn.Linear(8, 3)).eval()
    for seed, parameter in enumerate(model.parameters()):
        parameter.data = 1.5 * noise(*parameter.shape, seed=seed)
    posterior = bn.MCBN(batch_size=16, states=64).fit(model, noise(200, 3, seed=20), bn.Categorical()).at_layers(1)
    x = noise(500, 3, seed=1)
    odds = torch.softmax(posterior.executable.point(x) / 2, -1)
    y = torch.multinomial(odds, 1, generator=torch.Generator().manual_seed(0))[:, 0]
    bn.calibrate(posterior, x, y, batch_size=False)  # the first call also tests how the network can be run
    first.counter.clear()
    return posterior, x, y, first.counter


@pytest.mark.parametrize(
    ("options", "runs"), [({}, 1), ({"batch_size": True}, 3), ({"batch_size": [4, 16, 64, 256]}, 2)], ids=str
)
def test_candidates_share_what_comes_before_the_sampled_layers(counted, options, runs):
    posterior, x, y, counter = counted
    bn.calibrate(posterior, x, y, **options)
    assert sum(counter) <= runs * len(x) + 20, "and a few examples that are tried first"


def test_temperature_scaling_runs_the_network_once(counted):
    posterior, x, y, counter = counted
    alone = bn.deterministic(posterior.model, bn.Categorical())
    alone.predict(x)
    counter.clear()
    bn.calibrate(alone, x, y)
    assert sum(counter) <= len(x) + 20


@pytest.mark.parametrize(("truth", "evidence"), [(2.0, 2), (2.0, 0), (4096.0, 2)])
def test_few_samples_in_the_search_choose_as_well_as_all(counted, monkeypatch, truth, evidence):
    """The NLL of both choices, with all samples, differs by less than 0.002, far below its standard error of 0.02."""
    posterior, x, _, _ = counted
    f = torch.cat(
        [bn.MonteCarlo(50).outputs(posterior.at_batch_size(truth), x[k : k + 50], seed=k) for k in range(0, 500, 50)], 1
    )
    odds = torch.softmax(1.5 * f[torch.arange(500) % 50, torch.arange(500)], -1)
    y = torch.multinomial(odds, 1, generator=torch.Generator().manual_seed(0))[:, 0]
    options = {"batch_size": True, "evidence": evidence}
    quick = bn.calibrate(posterior, x, y, **options)
    monkeypatch.setattr(candidates_module, "SEARCH_SAMPLES", 64)
    whole = bn.calibrate(posterior, x, y, **options)
    assert mean_score(quick, x, y) == pytest.approx(mean_score(whole, x, y), abs=2e-3)
    assert (quick.batch_size == 4096) == (whole.batch_size == 4096)


def test_a_long_search_shows_its_progress(counted, monkeypatch, capsys):
    pytest.importorskip("rich")
    posterior, x, y, _ = counted
    monkeypatch.setattr("bayesnorm.progress.QUIET_SECONDS", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    bn.calibrate(posterior, x, y, batch_size=True)
    assert "calibrate" in capsys.readouterr().err
