"""Table 2 of the MCBN paper beside our numbers, with a verdict for each cell and claim.

The paper's score is the mean log probability (its PLL), which is minus our NLL. The paper samples batches "the same way
as during training", so the rows that are compared with it take batches that are cropped and mirrored as in training.
Standard errors (s.e.) are over our test images; those of differences are over the differences image by image. The paper
prints two digits, so a cell is known to 0.005 and a difference of two cells to 0.01.

- A cell's *value* agrees if ours is within 0.005 and two s.e. of the paper's.
- A cell's *gain* over the softmax agrees if ours has the paper's sign by more than two s.e., or, if the paper's is 0,
  is within 0.01 and two s.e. of 0.
- A cell holds if value and gain agree, holds partly if one of them does, and does not hold otherwise. The softmax has
  no gain: its cell holds or does not.
- A claim that one thing is better than another holds if the difference is positive by more than two s.e., partly if it
  is positive but smaller, and does not hold otherwise. The claim that 32 samples are enough holds if more samples gain
  at most 0.01, and partly if they gain at most 0.02.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..paper_facts import Fact, paper_facts
from .methods import MCBN, PUBLISHED, SOFTMAX, TEMPERATURE, UNAUGMENTED
from .scoring import Score, Scores

HOLDS, PARTLY, DOES_NOT = "holds", "partly", "does not"
ERRORS = 2.0
CELL, DIFFERENCE = 0.005, 0.01
"""The largest rounding error of a cell of the paper, and of a difference of two cells."""
FEW = 32
"""The number of samples that the paper calls as good as 128."""


@dataclass(frozen=True)
class Cell:
    """A cell of the table.

    Args:
        samples: Number of samples T; None for the softmax.
        theirs: The paper's PLL.
        ours: Our PLL.
        standard_error: Standard error of our PLL over images.
        their_gain: The paper's gain over its softmax; None for the softmax.
        gain: Our gain over our softmax.
        gain_error: Standard error of our gain.
        spread: Standard deviation of our PLL between predictions that share no sample; None if there is only one.
        verdict: Whether the cell holds.
    """

    samples: int | None
    theirs: float
    ours: float
    standard_error: float
    their_gain: float | None
    gain: float | None
    gain_error: float | None
    spread: float | None
    verdict: str


@dataclass(frozen=True)
class Claim:
    """A claim of the table, or a question that it leaves open.

    Args:
        words: The claim or question.
        theirs: The paper's difference; None if the paper has none.
        ours: Our difference.
        standard_error: Standard error of our difference.
        verdict: Whether the claim holds, or, for an open question, "better", "worse" or "not significant".
    """

    words: str
    theirs: float | None
    ours: float
    standard_error: float
    verdict: str


def cells(scores: Scores, method: str = PUBLISHED) -> list[Cell]:
    """Return the cells of the table for which a method has enough samples."""
    softmax = scores.score(SOFTMAX)
    drawn = {score.samples: score for score in scores.all if score.method == method}
    theirs = paper_facts("teye2018", 2)
    baseline = _softmax(theirs).value
    results = []
    for fact in theirs:
        samples = fact.settings.get("passes")
        if samples is None:
            verdict = HOLDS if _agrees_in_value(softmax, fact.value) else DOES_NOT
            results.append(
                Cell(None, fact.value, -softmax.mean, softmax.standard_error, None, None, None, None, verdict)
            )
        elif samples in drawn:
            score = drawn[int(samples)]
            gain, error = score.gain_over(softmax)
            their_gain = round(fact.value - baseline, 4)
            agreeing = _agrees_in_value(score, fact.value) + _agrees_in_gain(gain, error, their_gain)
            verdict = (DOES_NOT, PARTLY, HOLDS)[agreeing]
            values = (fact.value, -score.mean, score.standard_error)
            results.append(Cell(int(samples), *values, their_gain, gain, error, score.spread, verdict))
    return results


def claims(scores: Scores) -> list[Claim]:
    """Return the claims of the table, and below them the questions that it leaves open."""
    by_samples = {
        fact.settings["passes"]: fact.value for fact in paper_facts("teye2018", 2) if "passes" in fact.settings
    }
    baseline = _softmax(paper_facts("teye2018", 2)).value
    softmax, tempered, centred = scores.score(SOFTMAX), scores.score(TEMPERATURE), scores.score(MCBN)
    one, most = scores.score(PUBLISHED, 1), scores.score(PUBLISHED)
    drawn = most.samples
    results = [
        _better(f"{drawn} samples are better than one", most, one, by_samples[drawn] - by_samples[1]),
        _better(f"{drawn} samples are better than the softmax", most, softmax, by_samples[drawn] - baseline),
    ]
    if drawn > FEW:
        gain, error = most.gain_over(scores.score(PUBLISHED, FEW))
        verdict = HOLDS if gain <= DIFFERENCE else PARTLY if gain <= 2 * DIFFERENCE else DOES_NOT
        results.append(
            Claim(f"{FEW} samples are as good as {drawn}", by_samples[drawn] - by_samples[FEW], gain, error, verdict)
        )
    results += [
        _asked(f"{drawn} samples against softmax with temperature", most, tempered),
        *(
            _asked(f"batches without augmentation, {plain.samples} samples, against softmax", plain, softmax)
            for plain in scores.all
            if plain.method == UNAUGMENTED and plain.samples == drawn
        ),
        _asked(f"our default, {centred.samples} samples, against {drawn} as published", centred, most),
        _asked(f"our default, {centred.samples} samples, against softmax with temperature", centred, tempered),
    ]
    return results


def _agrees_in_value(score: Score, theirs: float) -> bool:
    return abs(-score.mean - theirs) <= CELL + ERRORS * score.standard_error


def _agrees_in_gain(gain: float, error: float, theirs: float) -> bool:
    if abs(theirs) < CELL:
        return abs(gain) <= DIFFERENCE + ERRORS * error
    return gain * theirs > 0 and abs(gain) > ERRORS * error


def _better(words: str, one: Score, other: Score, theirs: float) -> Claim:
    gain, error = one.gain_over(other)
    verdict = HOLDS if gain > ERRORS * error else PARTLY if gain > 0 else DOES_NOT
    return Claim(words, round(theirs, 4), gain, error, verdict)


def _asked(words: str, one: Score, other: Score) -> Claim:
    gain, error = one.gain_over(other)
    beyond = abs(gain) > ERRORS * error
    return Claim(words, None, gain, error, ("better" if gain > 0 else "worse") if beyond else "not significant")


def _softmax(facts: tuple[Fact, ...]) -> Fact:
    return next(fact for fact in facts if fact.method == "softmax")
