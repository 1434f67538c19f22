"""Tables over batch sizes, from rows some of which say how many samples they are of."""

from __future__ import annotations

import pytest

from experiments.teye_tables import compare

from .made_up_runs import runs


def told(rows, passes):
    return [{**row, "passes": passes} for row in rows]


@pytest.mark.parametrize(("table", "metric"), [(8, "normalised_crps"), (9, "normalised_pll")])
def test_sizes_without_fewer_samples_have_the_benchmarks_own(table, metric):
    """The benchmark keeps scores of fewer samples at M = 128 alone; the other sizes must not go with that."""
    rows = []
    for name in ("boston", "yacht"):
        for size, mean in ((32, 11.0), (64, 7.0), (128, 3.0)):
            rows += runs(name, "MCBN", setting=size, **{metric: (mean, 1.0)})
    for passes, mean in ((50, 1.0), (100, 2.0)):
        rows += told(runs("boston", "MCBN", setting=128, **{metric: (mean, 1.0)}), passes)
    found = {(cell.dataset, cell.setting): cell for cell in compare(table, rows)}
    expected = {("boston", 32): 11.0, ("boston", 64): 7.0, ("boston", 128): 2.0, ("yacht", 128): 3.0}
    for (name, size), mean in expected.items():
        cell = found[name, f"M = {size}"]
        assert cell.ours == pytest.approx(mean), (name, size)
        assert cell.runs == 25
    assert found["boston", "M = 256"].runs == 0
