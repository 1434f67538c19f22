"""The one-dimensional search against scipy's."""

import math

import pytest
import torch
from scipy.optimize import minimize_scalar

from bayesnorm.calibration import minimise_on_log_scale

FUNCTIONS = {
    "parabola in the logarithm": lambda t: (math.log(t) - 1.3) ** 2 + 2,
    "variance of normal data": lambda t: 0.5 * math.log(t) + 0.7 / (2 * t),
    "two valleys": lambda t: -math.exp(-((math.log(t) - 2) ** 2)) - 2 * math.exp(-((math.log(t) + 2) ** 2)),
    "flat and steep": lambda t: t + 1e-3 / t,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_finds_what_scipy_finds(name):
    function = FUNCTIONS[name]
    low, high = torch.tensor(1e-4), torch.tensor(1e4)

    def in_double(level):
        return torch.tensor(function(level.item()), dtype=torch.float64)

    level, value = minimise_on_log_scale(in_double, low, high)
    # Scipy gets a bracket about the right valley; both are then good to the square root of rounding.
    grid = torch.linspace(math.log(1e-4), math.log(1e4), 2001, dtype=torch.float64)
    start = grid[min(range(2001), key=lambda k: function(math.exp(grid[k])))].item()
    exact = minimize_scalar(
        lambda u: function(math.exp(u)), bounds=(start - 0.1, start + 0.1), method="bounded", options={"xatol": 1e-10}
    )
    assert math.log(level.item()) == pytest.approx(exact.x, abs=1e-5)
    assert value.item() == pytest.approx(exact.fun, rel=1e-9)


def test_several_functions_at_once_are_each_alone():
    targets = torch.tensor([0.01, 1.0, 30.0], dtype=torch.float64)
    low, high = targets * 1e-3, targets * 1e2

    def objective(level):
        return (level.log() - targets.log()).square() + targets

    level, value = minimise_on_log_scale(objective, low, high)
    torch.testing.assert_close(level, targets, rtol=1e-6, atol=0)
    torch.testing.assert_close(value, targets, rtol=1e-10, atol=0)


@pytest.mark.parametrize(("slope", "end"), [(1, 0.5), (-1, 8.0)])
def test_a_minimum_at_an_end_is_found_and_the_range_is_kept(slope, end):
    looked = []

    def objective(level):
        looked.append(level.item())
        return slope * level.log()

    level, _ = minimise_on_log_scale(objective, torch.tensor(0.5), torch.tensor(8.0))
    assert level.item() == pytest.approx(end, rel=1e-9)
    assert min(looked) >= 0.5 * (1 - 1e-12)
    assert max(looked) <= 8 * (1 + 1e-12)


def test_what_is_not_finite_is_passed_over():
    def objective(level):
        return torch.where(level > 2, (level.log() - 1.5).square(), torch.nan)

    level, value = minimise_on_log_scale(objective, torch.tensor(0.01), torch.tensor(100.0))
    assert level.item() == pytest.approx(math.exp(1.5), rel=1e-6)
    assert value.item() == pytest.approx(0, abs=1e-12)


def test_never_above_the_best_grid_point():
    """A function with many valleys: the value is that of the point given back, and no grid point is better."""

    def objective(level):
        return torch.sin(40 * level.log()) + 0.01 * level.log().square()

    low, high = torch.tensor(0.05), torch.tensor(20.0)
    level, value = minimise_on_log_scale(objective, low, high)
    grid = torch.linspace(math.log(0.05), math.log(20), 25, dtype=torch.float64).exp()
    assert value <= min(objective(point) for point in grid) + 1e-12
    assert value.item() == pytest.approx(objective(level).item(), abs=1e-9)
