"""Table 2 of the MCBN paper beside our numbers, with a verdict for each cell and claim.

The rule was written before our numbers were looked at. The paper's score is the mean log probability (its PLL), minus
our NLL. Standard errors (s.e.) are over our test images; those of differences are over differences image by image. The
paper prints two digits, so that a cell is known to .005 and a difference of two to .01.

- A cell's *value* agrees where ours is within .005 and two s.e. of theirs.
- A cell's *gain* over the softmax agrees where ours has the sign of theirs beyond two s.e., or, where theirs is 0, is
  within .01 and two s.e. of 0.
- A cell holds where value and gain agree, holds partly where one of them does, and does not hold where none does. The
  softmax has no gain: its cell holds or does not.
- A claim that one thing is better than another holds where the difference is positive beyond two s.e., partly where it
  is positive within them, and does not hold otherwise. The claim that few samples do holds where more gain at most .01,
  and partly where they gain at most .02.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..paper_facts import Fact, paper_facts
from .methods import AUGMENTED, MCBN, PUBLISHED, SOFTMAX, TEMPERATURE
from .scoring import Score, Scores

HOLDS, PARTLY, DOES_NOT = "holds", "partly", "does not"
ERRORS = 2.0
CELL, DIFFERENCE = 0.005, 0.01
"""How far the paper's rounding may be off, of a cell and of a difference of two."""
FEW = 32
"""Samples that the paper finds to be as good as 128."""


@dataclass(frozen=True)
class Cell:
    """A cell of the table.

    Args:
        samples: T; None for the softmax.
        theirs: The paper's PLL.
        ours: Ours.
        standard_error: Of ours, over images.
        their_gain: The paper's gain over its softmax; None for the softmax.
        gain: Ours.
        gain_error: Its standard error.
        spread: Standard deviation of ours between predictions that share no draw; None where there is one only.
        verdict: Whether it holds.
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
        words: What is claimed or asked.
        theirs: The paper's difference; None where it says nothing.
        ours: Ours.
        standard_error: Its standard error.
        verdict: Whether it holds, or, where the paper says nothing, what is so.
    """

    words: str
    theirs: float | None
    ours: float
    standard_error: float
    verdict: str


def cells(scores: Scores) -> list[Cell]:
    """Return the cells of the table for which there are samples enough."""
    softmax = scores.of(SOFTMAX)
    drawn = {score.samples: score for score in scores.all if score.method == PUBLISHED}
    theirs = paper_facts("teye2018", 2)
    baseline = _softmax(theirs).value
    found = []
    for fact in theirs:
        samples = fact.settings.get("passes")
        if samples is None:
            verdict = HOLDS if _agrees_in_value(softmax, fact.value) else DOES_NOT
            found.append(Cell(None, fact.value, -softmax.mean, softmax.standard_error, None, None, None, None, verdict))
        elif samples in drawn:
            score = drawn[int(samples)]
            gain, error = score.gain_over(softmax)
            their_gain = round(fact.value - baseline, 4)
            agreeing = _agrees_in_value(score, fact.value) + _agrees_in_gain(gain, error, their_gain)
            verdict = (DOES_NOT, PARTLY, HOLDS)[agreeing]
            values = (fact.value, -score.mean, score.standard_error)
            found.append(Cell(int(samples), *values, their_gain, gain, error, score.spread, verdict))
    return found


def claims(scores: Scores) -> list[Claim]:
    """Return what the table claims, and beneath it what it leaves open."""
    by_samples = {
        fact.settings["passes"]: fact.value for fact in paper_facts("teye2018", 2) if "passes" in fact.settings
    }
    baseline = _softmax(paper_facts("teye2018", 2)).value
    softmax, tempered, centred = scores.of(SOFTMAX), scores.of(TEMPERATURE), scores.of(MCBN)
    one, most = scores.of(PUBLISHED, 1), scores.of(PUBLISHED)
    drawn = most.samples
    found = [
        _better(f"{drawn} samples are better than one", most, one, by_samples[drawn] - by_samples[1]),
        _better(f"{drawn} samples are better than the softmax", most, softmax, by_samples[drawn] - baseline),
    ]
    if drawn > FEW:
        gain, error = most.gain_over(scores.of(PUBLISHED, FEW))
        verdict = HOLDS if gain <= DIFFERENCE else PARTLY if gain <= 2 * DIFFERENCE else DOES_NOT
        found.append(
            Claim(f"{FEW} samples do as well as {drawn}", by_samples[drawn] - by_samples[FEW], gain, error, verdict)
        )
    found += [
        _asked(f"{drawn} samples against softmax with temperature", most, tempered),
        *(
            _asked(f"the same from batches as in training, {own.samples} samples", own, most)
            for own in scores.all
            if own.method == AUGMENTED and own.samples == drawn
        ),
        _asked(f"the same about the running statistics (our default), {centred.samples} samples", centred, most),
        _asked(f"our default, {centred.samples} samples, against softmax with temperature", centred, tempered),
    ]
    return found


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
    return Claim(words, None, gain, error, ("better" if gain > 0 else "worse") if beyond else "no telling")


def _softmax(facts: tuple[Fact, ...]) -> Fact:
    return next(fact for fact in facts if fact.method == "softmax")
