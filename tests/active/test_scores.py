"""Scores of single rows: cases that can be done by hand, and what must always hold."""

import math

import pytest
import torch
from hypothesis import given, strategies as st

import bayesnorm as bn
from bayesnorm import ClassificationPredictive, RegressionPredictive, active
from bayesnorm.errors import InputError
from bayesnorm.predictive import GaussianPredictive

HALF = math.log(2)


@pytest.fixture
def three_rows():
    """Two samples of two classes: both sure and agreed; both unsure; each sure of another class."""
    probs = [[[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]], [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]]
    return ClassificationPredictive(torch.tensor(probs, dtype=torch.float64).log())


def test_entropy_sees_uncertainty_and_bald_only_disagreement(three_rows):
    assert active.entropy(three_rows).tolist() == pytest.approx([0, HALF, HALF])
    assert active.bald(three_rows).tolist() == pytest.approx([0, 0, HALF])
    assert active.choose(active.bald, three_rows, 1).tolist() == [2]


def test_variances_by_hand():
    predictive = RegressionPredictive(
        torch.tensor([[[0.0], [1.0]], [[2.0], [1.0]]]), torch.tensor([[1.0], [3.0]])[None], None
    )
    assert active.epistemic_variance(predictive).tolist() == pytest.approx([1, 0])
    assert active.predictive_variance(predictive).tolist() == pytest.approx([2, 9])
    assert active.bald(predictive).tolist() == pytest.approx([0.5 * HALF, 0])
    assert active.choose(active.epistemic_variance, predictive, 1).tolist() == [0]
    assert active.choose(active.predictive_variance, predictive, 1).tolist() == [1], "noise no label can mend"


def test_a_closed_gaussian_has_the_same_scores():
    predictive = GaussianPredictive(torch.zeros(2, 1), torch.tensor([[3.0], [0.0]]), torch.tensor(1.0))
    assert active.epistemic_variance(predictive).tolist() == pytest.approx([3, 0])
    assert active.bald(predictive).tolist() == pytest.approx([HALF, 0])


def test_several_outputs_and_pixels_count_by_their_mean(make_task):
    outputs = RegressionPredictive(torch.tensor([[[0.0, 0.0]], [[2.0, 4.0]]]), torch.tensor(1.0))
    assert active.epistemic_variance(outputs).tolist() == pytest.approx([(1 + 4) / 2])
    task = make_task("per_pixel")
    predictive = bn.MCBN(16, states=8).fit(task.model, task.x, task.likelihood).predict(task.new_x)
    for score, whole in ((active.bald, predictive.mutual_information), (active.entropy, predictive.entropy)):
        assert torch.equal(score(predictive), whole.flatten(1).mean(1))
        assert score(predictive).shape == (6,)


def test_one_number_per_row_without_an_axis_of_outputs():
    predictive = RegressionPredictive(torch.tensor([[0.0, 1.0], [2.0, 1.0]]), torch.tensor(1.0))
    assert active.epistemic_variance(predictive).tolist() == pytest.approx([1, 0])
    assert active.variance_reduction(predictive).tolist() == pytest.approx([1 / 2 / (1 + 1), 0])


def test_random_rows_are_seeded(make_classes):
    predictive = make_classes(2, 50, 3)
    first = active.Random().choose(predictive, 50, seed=1)
    assert torch.equal(first, active.Random().choose(predictive, 50, seed=1))
    assert not torch.equal(first, active.Random().choose(predictive, 50, seed=2))
    assert sorted(first.tolist()) == list(range(50))


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 5), st.floats(0.01, 60))
def test_mutual_information_is_between_0_and_entropy(seed, samples, classes, sharpness):
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(samples, 4, classes, generator=generator)
    predictive = ClassificationPredictive(logits.log_softmax(2))
    scores = active.bald(predictive)
    assert bool((scores >= 0).all())
    assert bool((scores <= active.entropy(predictive) + 1e-5).all())


def test_wrong_predictives_are_refused(make_classes):
    regression = RegressionPredictive(torch.zeros(2, 3, 1), torch.tensor(1.0))
    with pytest.raises(InputError, match=r"predictive must be .* got a RegressionPredictive.*epistemic_variance"):
        active.entropy(regression)
    with pytest.raises(InputError, match=r"predictive must be .* got a Tensor"):
        active.bald(torch.zeros(3))
    with pytest.raises(InputError, match="at least one example"):
        active.bald(ClassificationPredictive(torch.zeros(2, 0, 3)))


def test_what_choosing_refuses(make_classes):
    predictive = make_classes(2, 4, 3)

    class Twice:
        def choose(self, predictive, count, *, seed=0, reference=None):
            return [1, 1]

    for acquisition, count, match in (
        (lambda p: p.probs, 1, r"one score per example, got shape \(4, 3\) for 4 examples"),
        (lambda p: torch.tensor([0.0, math.nan, 1.0, math.nan]), 1, "2 NaN scores out of 4"),
        (Twice(), 2, "got 1 twice"),
        (Twice(), 3, "must return 3 indices"),
    ):
        with pytest.raises(InputError, match=match):
            active.choose(acquisition, predictive, count)


SCORES = (active.bald, active.entropy, active.epistemic_variance, active.predictive_variance)


@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.__name__)
def test_outputs_that_are_no_numbers_are_refused(make_classes, score):
    """Mutual information of NaN would come out as 0: a broken row would look like one that tells nothing."""
    broken = make_classes(4, 5, 3).log_probs
    broken[2, 3] = math.nan
    with pytest.raises(InputError, match="predictive has 3 NaN or infinite means out of 15"):
        score(ClassificationPredictive(broken))


def test_noise_without_a_variance_is_refused():
    """Beside infinite noise all rows look alike, and the choice would be any."""
    for score in (active.bald, active.predictive_variance):
        heavy = bn.StudentT(df=1.5).predictive(torch.randn(6, 4, 1, generator=torch.Generator().manual_seed(0)))
        with pytest.raises(InputError, match=r"predictive: StudentTNoise has an infinite variance.*epistemic_variance"):
            score(heavy)
        assert bool((active.epistemic_variance(heavy) > 0).all())


@pytest.fixture
def two_tasks():
    """Ten rows of a number and of three classes."""
    likelihood = bn.MultiTask({"depth": bn.Gaussian(), "label": (bn.Categorical(), 3)})
    return likelihood.predictive(torch.randn(6, 10, 4, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.__name__)
def test_several_tasks_are_scored_one_at_a_time(two_tasks, score):
    with pytest.raises(InputError, match=r"predictive is a MultiTaskPredictive.*predictive\['depth'\]"):
        score(two_tasks)


def test_rows_of_several_tasks_are_chosen_by_one_of_them(two_tasks):
    choice = active.choose(lambda predictive: active.bald(predictive["label"]), two_tasks, 4)
    assert choice.tolist() == active.choose(active.bald, two_tasks["label"], 4).tolist()
    assert active.choose(active.Random(), two_tasks, 10).sort().values.tolist() == list(range(10))
    with pytest.raises(bn.BayesNormError, match=r"count must be .* 10, the number of candidates, got 11"):
        active.choose(active.Random(), two_tasks, 11)
