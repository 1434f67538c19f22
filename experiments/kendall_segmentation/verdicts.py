"""The claims of Kendall and Gal (2017), with a verdict for each.

The rules were written before our results were known. Standard errors (s.e.) are over test images; for the same images,
they are those of differences image by image.

- One method is better than another if the difference is positive by more than two s.e.; partly if it is positive.
- Precision falls with uncertainty if each tenth of the pixels, ordered by entropy (for red: by standard deviation), has
  more error than the one before; partly if at least seven of nine steps go up.
- Epistemic uncertainty falls with more data if it is lower with all images than with a quarter, by more than two s.e.;
  partly if it is lower. Aleatoric uncertainty stays if it changes by less than a tenth; partly if by less than a
  quarter.
- Epistemic uncertainty rises in another light if a network trained by day has more of it at dusk than by day, by more
  than two s.e.; partly if it has more. Aleatoric uncertainty stays as above.
- Calibration is better if the ECE is lower by more than 0.005; partly if it is lower.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ..segmentation.frames import Light
from ..segmentation.pixels import paired
from ..teye_figure2.verdicts import PARTLY_UP, UP, Claim
from ..teye_table2.verdicts import DOES_NOT, ERRORS, HOLDS, PARTLY
from .measuring import ALEATORIC, ALL, BOTH, DAY, EPISTEMIC, METHODS, NEITHER, QUARTER, kind_name

STAYS, PARTLY_STAYS = 0.1, 0.25
CALIBRATED = 0.005
NAMES = {EPISTEMIC: "mutual information", ALEATORIC: "expected entropy"}
TOTAL = "entropy"
ANY, BY_DAY, AT_DUSK = str(Light.any), str(Light.day), str(Light.dusk)
# Training images and test images: few and many, then the light of the training images and the other one.
CASES = ((QUARTER, ANY), (ALL, ANY), (DAY, BY_DAY), (DAY, AT_DUSK))


def claims(result: dict[str, Any]) -> list[Claim]:
    """Return all claims, for classes and then for the red channel, with epistemic uncertainty from each method."""
    classes, red = result["classes"], result["red"]
    whole = {kind: values[ANY] for kind, values in classes[ALL].items()}
    told = [_more_accurate(whole, ALEATORIC, NEITHER), _calibrated(whole, ALEATORIC)]
    for method in METHODS:
        epistemic, both = kind_name(EPISTEMIC, method), kind_name(BOTH, method)
        told += [_more_accurate(whole, kind, NEITHER) for kind in (epistemic, both)]
        told += [_likelier(whole, both, kind) for kind in (NEITHER, epistemic, ALEATORIC)]
        told += [_calibrated(whole, kind) for kind in (epistemic, both)]
        told.append(
            _falling(
                f"classes: precision falls with uncertainty, {both}", whole[both]["doubts"][TOTAL]["error of deciles"]
            )
        )
        for part, name in NAMES.items():
            doubts = [classes[case][both][light]["doubts"][name]["mean of frames"] for case, light in CASES]
            told += _with_data_and_light(f"classes, {method}", part, *doubts)
    for method in METHODS:
        tenths = red[ALL][method][ANY]["parts"][BOTH]["error of deciles"]
        told.append(_falling(f"red, {method}: precision falls with uncertainty", tenths))
        for part in NAMES:
            doubts = [red[case][method][light]["parts"][part]["mean of frames"] for case, light in CASES]
            told += _with_data_and_light(f"red, {method}", part, *doubts)
    return told


def _with_data_and_light(
    task: str, part: str, few: list[float], many: list[float], day: list[float], dusk: list[float]
) -> list[Claim]:
    """Judge how a part of the uncertainty changes with more data and in another light."""
    fall, fall_error = paired(list(few), list(many))
    before, after, inside, outside = (sum(values) / len(values) for values in (few, many, day, dusk))
    seen = f"{before:.4f} with a quarter of the frames, {after:.4f} with all"
    other = f"{inside:.4f} by day, {outside:.4f} at dusk"
    if part == EPISTEMIC:
        rise = outside - inside
        rise_error = (paired(list(day), 0.0)[1] ** 2 + paired(list(dusk), 0.0)[1] ** 2) ** 0.5
        return [
            Claim(f"{task}: epistemic uncertainty falls with more data", seen, _better(fall, fall_error)),
            Claim(f"{task}: epistemic uncertainty rises on another light", other, _better(rise, rise_error)),
        ]
    return [
        Claim(f"{task}: aleatoric uncertainty stays with more data", seen, _stays(before, after)),
        Claim(f"{task}: aleatoric uncertainty stays on another light", other, _stays(inside, outside)),
    ]


def _more_accurate(whole: dict[str, Any], kind: str, other: str) -> Claim:
    mean, error = paired(whole[kind]["accuracy of frames"], whole[other]["accuracy of frames"])
    iou = whole[kind]["mean IoU"] - whole[other]["mean IoU"]
    seen = f"accuracy {mean:+.4f} ± {error:.4f}, mean IoU {iou:+.4f}"
    return Claim(f"classes: {kind} is more accurate than {other}", seen, _better(mean, error))


def _likelier(whole: dict[str, Any], kind: str, other: str) -> Claim:
    mean, error = paired(whole[other]["nll of frames"], whole[kind]["nll of frames"])
    seen = f"NLL lower by {mean:+.4f} ± {error:.4f}"
    return Claim(f"classes: {kind} is likelier than {other}", seen, _better(mean, error))


def _calibrated(whole: dict[str, Any], kind: str) -> Claim:
    gain = whole[NEITHER]["ece"] - whole[kind]["ece"]
    verdict = HOLDS if gain > CALIBRATED else PARTLY if gain > 0 else DOES_NOT
    seen = f"ECE {whole[kind]['ece']:.4f}, without {whole[NEITHER]['ece']:.4f}"
    return Claim(f"classes: {kind} is calibrated better than {NEITHER}", seen, verdict)


def _falling(words: str, tenths: list[float]) -> Claim:
    steps = sum(after > before for before, after in pairwise(tenths))
    verdict = HOLDS if steps >= UP else PARTLY if steps >= PARTLY_UP else DOES_NOT
    return Claim(words, f"{steps} of 9 steps, error from {tenths[0]:.4f} to {tenths[-1]:.4f}", verdict)


def _better(mean: float, error: float) -> str:
    return HOLDS if mean > ERRORS * error else PARTLY if mean > 0 else DOES_NOT


def _stays(before: float, after: float) -> str:
    change = abs(after - before) / before
    return HOLDS if change < STAYS else PARTLY if change < PARTLY_STAYS else DOES_NOT
