"""The monitor of a stream: one false-alarm rate for all of it, whatever p-values are worth, and quick alarms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import bayesnorm as bn
from bayesnorm.errors import FileFormatError
from bayesnorm.shift import Drift, DriftMonitor, monitor as module

from ..marks import takes_long
from .conftest import fitted, fresh


def alarms(p_values: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """At which batch every stream of p-values, (streams, batches), rings."""
    results = []
    for seed, stream in enumerate(p_values):
        values = iter(stream)
        monkeypatch.setattr(module, "drift", lambda *_: Drift(next(values), 4, 1.0, ()))  # noqa: B023
        watch = DriftMonitor(fitted(), seed=seed)
        for _ in stream:
            watch.update(None)
        results.append(watch.alarm)
    return results


@pytest.mark.parametrize("power", [1.0, pytest.param(1.1, marks=takes_long)])
def test_streams_without_drift_hardly_ever_ring(power, monkeypatch):
    # Also where p-values are too small throughout: ranks among those of the stream make up for it.
    p_values = np.random.default_rng(0).random((100, 200)) ** power
    rung = sum(alarm is not None for alarm in alarms(p_values, monkeypatch))
    assert rung <= stats.binom.ppf(0.999, 100, 0.05)


def test_a_drift_rings_soon_after_it_begins_also_late_in_a_stream(monkeypatch):
    p_values = np.random.default_rng(1).random((20, 240))
    p_values[:, 200:] = 1e-6
    result = alarms(p_values, monkeypatch)
    assert all(alarm is not None and 200 < alarm <= 208 for alarm in result)


def test_batches_of_any_size_and_a_saved_state_that_goes_on(tmp_path):
    sizes = [1, 30, 5, 16, 80]
    batches = list(fresh(sum(sizes), 4).split(sizes)) + [part * 3 for part in fresh(64, 5).split(16)]
    whole = DriftMonitor(fitted(), level=0.05, seed=3)
    expected = [whole.update(batch) for batch in batches]
    assert not any(check.alarm for check in expected[:5])
    assert expected[-1].alarm
    assert whole.alarm is not None
    assert whole.batches == 9
    assert whole.rows == sum(sizes) + 64
    part = DriftMonitor(fitted(), level=0.05, seed=3)
    for i, batch in enumerate(batches):
        assert part.update(batch).evidence == expected[i].evidence
        part.save(tmp_path / "monitor")
        part = DriftMonitor.load(tmp_path / "monitor", fitted())
    assert part.alarm == whole.alarm


def test_a_stream_that_goes_on_long_after_its_alarm_can_be_saved(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "drift", lambda *_: Drift(1e-30, 4, 1.0, ()))
    watch = DriftMonitor(fitted())
    watch._counts *= 100  # as of a posterior from 12,800 batches
    for _ in range(500):
        watch.update(None)
    assert watch.alarm is not None
    watch.save(tmp_path / "monitor")
    assert DriftMonitor.load(tmp_path / "monitor", fitted()).evidence == watch.evidence


def test_wrong_levels_files_and_posteriors_are_refused(tmp_path):
    with pytest.raises(bn.BayesNormError, match="not a posterior over batch statistics"):
        DriftMonitor(bn.deterministic(fitted().model, bn.Gaussian()))
    fitted().save(tmp_path / "posterior")
    with pytest.raises(FileFormatError, match="is not a drift monitor"):
        DriftMonitor.load(tmp_path / "posterior", fitted())
    for name in ("_counts", "_stakes"):
        watch = DriftMonitor(fitted())
        getattr(watch, name)[-1] = 1e308
        watch.save(tmp_path / "monitor")
        with pytest.raises(FileFormatError, match=rf"{name[1:]} is 1e\+308 in the file.* numbers up to"):
            DriftMonitor.load(tmp_path / "monitor", fitted())
