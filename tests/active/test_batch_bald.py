"""BatchBALD against brute force over every configuration of labels."""

import itertools
import math
import sys

import pytest
import torch
from hypothesis import given, settings, strategies as st

from bayesnorm import ClassificationPredictive, active
from bayesnorm.errors import InputError


def joint_information(predictive, rows):
    """I(y_rows; w) by its definition: the entropy of all configurations, less its mean over samples."""
    probs, weights = predictive.log_probs.double().exp(), predictive.weights.double()
    whole = 0.0
    for labels in itertools.product(range(probs.shape[2]), repeat=len(rows)):
        likelihood = math.prod(probs[:, row, label] for row, label in zip(rows, labels, strict=True))
        whole += float(torch.special.entr(weights @ likelihood))
    return whole - sum(float(weights @ torch.special.entr(probs[:, row]).sum(1)) for row in rows)


def greedy_by_brute_force(predictive, count):
    rows = []
    for _ in range(count):
        others = [row for row in range(len(predictive)) if row not in rows]
        rows.append(max(others, key=lambda row: joint_information(predictive, [*rows, row])))
    return rows


def test_three_rows_of_three_classes_are_exact(make_classes):
    predictive = make_classes(5, 3, 3)
    choice = active.batch_bald(predictive, 3)
    for size in (1, 2, 3):
        exact = joint_information(predictive, choice.rows[:size].tolist())
        assert float(choice.gains[:size].sum()) == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("seed", range(2))
def test_greedy_choices_are_those_of_brute_force(make_classes, seed):
    predictive = make_classes(4, 9, 3, seed)
    assert active.batch_bald(predictive, 4).rows.tolist() == greedy_by_brute_force(predictive, 4)


def test_one_row_is_bald(make_classes):
    predictive = make_classes(7, 40, 4)
    choice = active.batch_bald(predictive, 1)
    best = active.bald(predictive).max(0)
    assert choice.rows.tolist() == [int(best.indices)]
    assert float(choice.gains[0]) == pytest.approx(float(best.values), rel=1e-12)


def test_memory_bounds_and_laziness_change_nothing(make_classes, monkeypatch):
    predictive = make_classes(6, 300, 4, sharpness=1.0)
    whole = active.batch_bald(predictive, 5)
    small = active.batch_bald(predictive, 5, block_bytes=200)
    assert small.rows.tolist() == whole.rows.tolist()
    assert torch.allclose(small.gains, whole.gains, rtol=1e-10)
    monkeypatch.setattr(sys.modules["bayesnorm.active.batch_acquisitions"], "LAZY_ROWS", 10**6)
    eager = active.batch_bald(predictive, 5)
    assert eager.rows.tolist() == whole.rows.tolist()


def test_a_copy_of_a_row_is_not_taken_for_new():
    """Row 0 tells everything there is about two samples, row 1 is its copy; row 2 tells less, but of two others."""
    sure, other = [0.999, 0.001], [0.001, 0.999]
    vague, even = [0.7, 0.3], [0.5, 0.5]
    probs = torch.tensor([[sure, sure, vague, even], [sure, sure, even, even], [other, other, vague, even]])
    predictive = ClassificationPredictive(probs.double().log())
    assert active.choose(active.bald, predictive, 2).tolist() == [0, 1]
    assert active.choose(active.BatchBALD(), predictive, 2).tolist() == [0, 2]


def test_certain_rows_add_nothing_and_no_row_comes_twice():
    probs = torch.tensor([[[1.0, 0.0]] * 4 + [[0.9, 0.1]], [[1.0, 0.0]] * 4 + [[0.1, 0.9]]], dtype=torch.float64)
    choice = active.batch_bald(ClassificationPredictive(probs.log()), 5)
    assert choice.rows[0] == 4
    assert sorted(choice.rows.tolist()) == list(range(5))
    assert choice.gains[1:].tolist() == pytest.approx([0] * 4, abs=1e-12)


def test_drawn_configurations_agree_with_exact_ones(make_classes):
    """256 of 4^5 = 1,024 configurations: unbiased, so the mean over seeds is within its standard error."""
    predictive = make_classes(8, 6, 4, sharpness=1.0)
    exact = active.batch_bald(predictive, 6, configurations=4**6)
    assert float(exact.gains.sum()) == pytest.approx(joint_information(predictive, exact.rows.tolist()), rel=1e-9)
    sums = torch.stack([active.batch_bald(predictive, 6, configurations=256, seed=s).gains.sum() for s in range(30)])
    error = float(sums.std()) / 30**0.5
    assert 0 < error < 0.01
    assert abs(float(sums.mean() - exact.gains.sum())) < 4 * error
    again = [active.batch_bald(predictive, 6, configurations=20, seed=3) for _ in range(2)]
    assert torch.equal(again[0].gains, again[1].gains), "same seed, same result"


def test_single_precision_is_enough(make_classes):
    predictive = make_classes(32, 200, 10)
    single = ClassificationPredictive(predictive.log_probs.float(), predictive.weights.float())
    exact, result = (active.batch_bald(p, 4) for p in (predictive, single))
    assert torch.allclose(result.gains, exact.gains, atol=1e-5)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 5), st.floats(0.1, 20))
def test_gains_fall_and_never_go_below_0(seed, samples, sharpness):
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(samples, 6, 3, generator=generator, dtype=torch.float64)
    predictive = ClassificationPredictive(logits.log_softmax(2))
    gains = active.batch_bald(predictive, 5).gains
    assert bool((gains >= 0).all())
    assert bool((gains.diff() <= 1e-9).all())
    assert float(gains.sum()) <= math.log(samples) + 1e-9, "there is no more to know than which draw"


def test_what_it_refuses(make_classes):
    predictive = make_classes(2, 4, 3)
    with pytest.raises(InputError, match=r"\(2, 4, 3, 5, 5\).*active\.bald"):
        active.batch_bald(ClassificationPredictive(torch.zeros(2, 4, 3, 5, 5).log_softmax(2)), 2)
    broken = predictive.log_probs.clone()
    broken[:, 1] = math.nan
    with pytest.raises(InputError, match="predictive has 3 NaN or infinite means out of 12"):
        active.batch_bald(ClassificationPredictive(broken), 3)


def test_autocast_changes_nothing(make_classes):
    """Gains are small differences of entropies, which half precision would drown."""
    exact = make_classes(16, 20, 3)
    predictive = ClassificationPredictive(exact.log_probs.float(), exact.weights.float())
    expected = active.batch_bald(predictive, 6)
    with torch.autocast("cpu", torch.bfloat16):
        choice = active.batch_bald(predictive, 6)
    assert torch.equal(choice.rows, expected.rows)
    assert torch.equal(choice.gains, expected.gains)
