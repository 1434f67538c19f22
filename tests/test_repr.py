"""What users look at in a shell prints in a line, however many layers, tasks or members there are."""

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm import compression, shift

LAYERS, TASKS = 20, 60
ROWS = torch.randn(120, 4, generator=torch.Generator().manual_seed(0))


def network(outputs=2):
    torch.manual_seed(0)
    parts = [part for _ in range(LAYERS) for part in (nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1))]
    return nn.Sequential(*parts, nn.Linear(4, outputs)).eval()


@pytest.fixture(scope="module")
def posterior():
    return bn.MCBN(batch_size=16, states=32).fit(network(), ROWS, bn.Gaussian())


def line(value):
    text = repr(value)
    assert "\n" not in text
    assert len(text) < 1000, "the three lines of a shell"
    return text


def test_posteriors(posterior):
    assert "method='MCBN', layers=<20 BatchNormLayer>" in line(posterior)
    dropout = bn.MCDropout().fit(posterior.model, ROWS, bn.Gaussian())
    line(dropout)
    assert "parts=<1 BatchNormPosterior + 1 DropoutPosterior>" in line(bn.combine(posterior, dropout))
    assert "members=<9 BatchNormPosterior>" in line(bn.ensemble([posterior] * 9))
    adapted = bn.adapt(posterior, ROWS + 1)
    for part in (adapted, adapted.adaptation, posterior.training_batches, posterior.fluctuations):
        line(part)
    tasks = bn.MultiTask({f"task {k}": bn.Gaussian() for k in range(TASKS)})
    for likelihood in (tasks, bn.Gaussian([1.5] * TASKS)):
        many = bn.deterministic(network(TASKS), likelihood)
        line(many)
        line(many.predict(ROWS))


def test_drift(posterior):
    drift = bn.drift(posterior, 3 * ROWS)
    assert f"first_layer={drift.first_layer!r}, layers=<20 LayerDrift>" in line(drift)
    assert "members=<9 Drift>" in line(bn.drift(bn.ensemble([posterior] * 9), ROWS))
    monitor = shift.DriftMonitor(posterior)
    assert line(monitor) == "DriftMonitor(alarm=None, evidence=1, batches=0)"
    watched = [monitor.update(3 * ROWS) for _ in range(12)]
    assert line(watched[-1]).startswith("Watched(alarm=True")
    assert f"alarm={monitor.alarm}, " in line(monitor)


def test_choices(posterior):
    y = torch.zeros(120, 2)
    suggestion = bn.suggest_layers(posterior.at_layers(4), ROWS, y, budget=1e9, samples=2)
    assert "options=<3 LayerOption>" in line(suggestion)
    assert "rows=<2 BatchSizeRow>" in line(bn.select_batch_size(posterior, (ROWS, y), batch_sizes=[16, 32], samples=2))
    assert line(bn.diagnose(posterior.model, ROWS, batch_sizes=[16, 32])) == "Diagnosis(sizes=<2 BatchSizeDiagnosis>)"


@pytest.mark.filterwarnings("ignore:The smaller network:bayesnorm.BayesNormWarning")
def test_compressed_networks(posterior):
    compressed = compression.prune_channels(posterior, ROWS, multiply_adds=0.9)
    line(compressed)
    assert f"layers=<{6 * LAYERS + 2} LayerReport>" in line(compressed.report())
