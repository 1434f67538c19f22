"""Calibration of stacked networks: each group gets what its networks would get as folds of one calibration."""

from __future__ import annotations

import pytest
import torch

import bayesnorm as bn
from bayesnorm.metrics import crps, pll
from bayesnorm.stacked import StackedEnsemble, StackedRows, by_own_rows, fit_stacked, stacked_point

from ..stacked.stacked_networks import batchnorm, data, dropout, network_in_target_units, own, together

GROUPS = [7, 2, 7, 2]
MEMBERS = {7: (0, 2), 2: (1, 3)}
HELD = {7: 30, 2: 21}
"""Held-out rows of each network, as many for all of a group; the others' lists are padded."""

START = bn.Gaussian(precision=[0.05, 3.0, 0.05, 3.0], axis=0, missing=True)
SAMPLES = 12


class Task:
    """Four networks in two groups, with rows that they were not trained on."""

    def __init__(self, make, method):
        x, y = data(120, torch.float64)
        generator = torch.Generator().manual_seed(1)
        lists = [torch.randperm(120, generator=generator) for _ in GROUPS]
        held = [HELD[group] for group in GROUPS]
        self.method, self.y = method, y
        self.rows = StackedRows.of(x, y, [r[n:] for r, n in zip(lists, held, strict=True)], standardise=True)
        scales = self.rows.scales
        self.held_out = StackedRows.of(x, y, [r[:n] for r, n in zip(lists, held, strict=True)], standardise=scales)
        networks = [make(0.2, seed).double() for seed in range(4)]
        self.stack, _ = together(networks, self.rows, epochs=15, learning_rate=1e-2)

    @property
    def targets(self):
        return self.held_out.own_targets

    def stacked(self, likelihood=START):
        if self.method is None:
            return stacked_point(self.stack, self.rows, likelihood)
        return fit_stacked(self.method, self.stack, self.rows, likelihood)

    def folds(self, group, likelihood):
        found = []
        for i in MEMBERS[group]:
            network, (x, _) = network_in_target_units(self.stack, self.rows, i), own(self.rows, i)
            point = self.method is None
            posterior = bn.deterministic(network, likelihood) if point else self.method.fit(network, x, likelihood)
            found.append((posterior, own(self.held_out, i)[0], self.targets[i, : HELD[group]]))
        return found


@pytest.fixture(scope="module")
def normed():
    return Task(batchnorm, bn.MCBN(16, states=SAMPLES))


@pytest.fixture(scope="module")
def dropped():
    return Task(dropout, bn.MCDropout())


def same_choice(task, likelihood=START, samples=SAMPLES, **options):
    """Calibrate the stack, and the folds of each group, which must agree; the calibrated stack."""
    field = next(name for name in ("precision", "scale") if hasattr(likelihood, name))
    kind, given = type(likelihood), getattr(likelihood, field)
    found = bn.calibrate(
        task.stacked(likelihood), task.held_out, task.targets, groups=GROUPS, samples=samples, seed=3, **options
    )
    for group, members in MEMBERS.items():
        folds = task.folds(group, kind(**{field: given[members[0]]}))
        expected = bn.calibrate(folds[0][0], folds=folds, samples=samples, seed=3, **options)
        for i in members:
            chosen = getattr(found.likelihood, field)[i]
            assert chosen == pytest.approx(getattr(expected.likelihood, field), rel=1e-4)
            if hasattr(expected, "batch_size"):
                assert float(found.batch_size[i]) == pytest.approx(expected.batch_size, rel=1e-12)
    assert (found.likelihood.axis, found.likelihood.missing) == (0, True)
    return found


OPTIONS = {
    "all": {},
    "noise": {"batch_size": False},
    "batch size": {"noise": False},
    "log density": {"score": "pll"},
    "between": {"batch_size": False, "noise": (0.5, 300.0)},
    "at an end": {"batch_size": False, "noise": (1e-3, 1e-2)},
    "between, any batch size": {"noise": (0.5, 300.0)},
    "some batch sizes": {"batch_size": [4.0, 22.6, 90]},
    "some batch sizes, between": {"batch_size": [4.0, 22.6, 90], "noise": (0.5, 300.0)},
    "some batch sizes only": {"batch_size": (4.0, 22.6, 90), "noise": False},
    "roughly": {"batch_size": False, "refinements": 8},
    "neither": {"noise": False, "batch_size": False},
}


@pytest.mark.parametrize("case", OPTIONS)
def test_groups_choose_what_folds_choose(normed, case):
    found, options = same_choice(normed, **OPTIONS[case]), OPTIONS[case]
    precision, sizes = torch.tensor(found.likelihood.precision), found.batch_size
    if options.get("noise") is not False:
        assert precision[0] != precision[1] or case == "at an end", "groups differ"
        assert ((precision - torch.tensor(START.precision)).abs() > 1e-3).all()
    else:
        assert found.likelihood == START
    if options.get("batch_size") is False:
        assert sizes.tolist() == [16.0] * 4
    if isinstance(options.get("noise"), tuple):
        low, high = options["noise"]
        assert ((1 / precision > 0.999 * low) & (1 / precision < 1.001 * high)).all()
    if isinstance(options.get("batch_size"), list | tuple):
        assert set(sizes.tolist()) <= {4.0, 22.6, 90.0}


def test_groups_of_networks_without_a_batch_size(dropped):
    same_choice(dropped)
    same_choice(dropped, batch_size=[1.0, 2.0])  # passed over
    dropped_point = Task(dropout, None)
    same_choice(dropped_point, samples=None)


@pytest.mark.parametrize("likelihood", [bn.Laplace, bn.StudentT])
def test_groups_choose_scales_of_other_noise(normed, likelihood):
    same_choice(normed, likelihood(scale=[2.0, 0.1, 2.0, 0.1], axis=0, missing=True), batch_size=False)


@pytest.mark.parametrize(("score", "metric"), [("crps", crps), ("pll", lambda *given, **own: -pll(*given, **own))])
def test_never_worse_in_any_group(normed, score, metric):
    """Also where one group is best left as it stands, and the other is not."""
    engine = bn.MonteCarlo(SAMPLES)

    def scores(posterior):
        each = metric(posterior.predict(normed.held_out, engine, seed=3), normed.targets, each=1)
        return torch.stack([each[[*members]].mean() for members in MEMBERS.values()])

    options = {"groups": GROUPS, "samples": SAMPLES, "seed": 3, "score": score}
    once = bn.calibrate(normed.stacked(), normed.held_out, normed.targets, **options)
    half = list(once.likelihood.precision)
    half[1] = half[3] = 3.0
    sizes = once.batch_size.clone()
    sizes[[1, 3]] = 16.0
    for start in (
        normed.stacked(),
        once,
        once.at_batch_size(sizes).with_likelihood(bn.Gaussian(half, axis=0, missing=True)),
    ):
        for flags in ({}, {"batch_size": False}, {"noise": False}):
            found = bn.calibrate(start, normed.held_out, normed.targets, **options, **flags)
            assert (scores(found) <= scores(start) + 1e-12).all()


def test_a_group_keeps_what_differs_inside_it_where_that_is_best(normed):
    """Candidates have one number for a group; as it stands, its networks may have several."""
    start = normed.stacked().at_batch_size([1e9, 16.0, 1e9, 20.0])
    found = bn.calibrate(start, normed.held_out, normed.targets, groups=[0, 1, 0, 1], noise=False, samples=SAMPLES)
    assert found.likelihood == START
    kept = bn.calibrate(found, normed.held_out, normed.targets, groups=[0, 1, 2, 3], noise=False, batch_size=False)
    assert kept.batch_size.tolist() == found.batch_size.tolist()
    # A noise for every network is the best of it; one for two is not better, so the first choice stays.
    own_choice = bn.calibrate(start, normed.held_out, normed.targets, groups=range(4), batch_size=False, seed=3)
    again = bn.calibrate(own_choice, normed.held_out, normed.targets, groups=[0, 1, 0, 1], batch_size=False, seed=3)
    assert len(set(own_choice.likelihood.precision)) == 4
    assert again.likelihood.precision == pytest.approx(own_choice.likelihood.precision, rel=1e-12)


def test_every_network_alone_is_a_group_of_its_own(normed):
    found = bn.calibrate(
        normed.stacked(), normed.held_out, normed.targets, groups=range(4), samples=SAMPLES, batch_size=False
    )
    for i, group in enumerate(GROUPS):
        ((posterior, x, y),) = [normed.folds(group, bn.Gaussian(START.precision[i]))[MEMBERS[group].index(i)]]
        expected = bn.calibrate(posterior, x, y, samples=SAMPLES, batch_size=False)
        assert found.likelihood.precision[i] == pytest.approx(expected.likelihood.precision, rel=1e-4)


def test_ensembles_of_stacked_networks_have_groups(dropped):
    everything = torch.arange(120)
    x = StackedRows.of(dropped.rows.x, dropped.rows.y, [everything[:30]] * 4, standardise=dropped.rows.scales)
    y = x.own_targets[:2]
    start = bn.Gaussian(precision=[1.0, 1.0], axis=0, missing=True)
    stacked = StackedEnsemble.of(dropped.stack, 2, dropped.rows, start)
    found = bn.calibrate(stacked, x, y, groups=[0, 1])
    for k in range(2):
        networks = [network_in_target_units(dropped.stack, dropped.rows, i) for i in (2 * k, 2 * k + 1)]
        inputs = x.inputs()[2 * k : 2 * k + 2]
        f = torch.stack([network(own_x) for network, own_x in zip(networks, inputs, strict=True)]).detach()
        best = min(
            (float(bn.Gaussian(p).predictive(f).crps(y[k]).mean()), p)
            for p in torch.linspace(-7, 1, 2001).exp().tolist()
        )
        assert found.likelihood.precision[k] == pytest.approx(best[1], rel=0.01)


def test_all_networks_together_are_one_predictor(normed):
    """Without groups every row counts once, whichever network it is asked of."""
    joined = by_own_rows(normed.stacked(bn.Gaussian()))
    y = torch.cat([normed.targets[i, : HELD[group]] for i, group in enumerate(GROUPS)])
    found = bn.calibrate(joined, normed.held_out, y, samples=SAMPLES, seed=3)
    folds = [fold for group in MEMBERS for fold in normed.folds(group, bn.Gaussian())]
    expected = bn.calibrate(folds[0][0], folds=folds, samples=SAMPLES, seed=3)
    assert found.likelihood.precision == pytest.approx(expected.likelihood.precision, rel=1e-4)
    assert found.batch_size.tolist() == pytest.approx([expected.batch_size] * 4)


def test_bad_groups(normed):
    x, y, stacked = normed.held_out, normed.targets, normed.stacked()
    for groups in ("ab", [0.0, 1.0, 0.0, 1.0], [], [[0, 1], [0, 1]], 3, [0, None, 1, 1]):
        with pytest.raises(bn.BayesNormError, match=r"groups must be a whole number for each network, got"):
            bn.calibrate(stacked, x, y, groups=groups)
    for score in ("crps", "pll"):
        with pytest.raises(bn.BayesNormError, match=r"groups has 3 entries, but the outputs have shape \(4, 30, 1\)"):
            bn.calibrate(stacked, x, y, groups=[0, 1, 2], score=score)
        (posterior, own_x, own_y), _ = normed.folds(7, bn.Gaussian())
        with pytest.raises(bn.BayesNormError, match=r"groups is for a stack of networks, .* one network"):
            bn.calibrate(posterior, own_x, own_y, groups=[0, 1], score=score)
    for likelihood in (bn.Gaussian(missing=True), bn.Gaussian(axis=0, missing=True)):
        with pytest.raises(
            bn.BayesNormError, match=r"groups needs a likelihood with one noise per network.*precision=\[.*axis=0"
        ):
            bn.calibrate(stacked.with_likelihood(likelihood), x, y, groups=GROUPS)
    with pytest.raises(bn.BayesNormError, match=r"precision has 4 numbers, but the outputs have shape \(4, 30, 1\)"):
        bn.calibrate(stacked.with_likelihood(bn.Gaussian([1.0] * 4, missing=True)), x, y, groups=GROUPS, noise=False)


@pytest.mark.parametrize(
    "noise", [(1.0,), (2.0, 1.0), (0.0, 1.0), (1.0, 1.0), ("a", "b"), 0.3, (1, 2, 3), (1.0, float("inf"))]
)
def test_bad_ranges_of_noise(normed, noise):
    with pytest.raises(bn.BayesNormError, match=r"noise must be True, False or \(low, high\)"):
        bn.calibrate(normed.stacked(), normed.held_out, normed.targets, groups=GROUPS, noise=noise)


@pytest.mark.parametrize("sizes", [[], [0.0], [4.0, -1.0], "ab", 16.0, [float("nan")]])
def test_bad_batch_sizes(normed, sizes):
    with pytest.raises(bn.BayesNormError, match=r"^batch_size "):
        bn.calibrate(normed.stacked(), normed.held_out, normed.targets, groups=GROUPS, batch_size=sizes)
