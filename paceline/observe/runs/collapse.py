"""Tells a run whose model has not learned, or has lost what it had, by its evaluations; and what may help.

The latest evaluations (a quarter of all, three at least) are judged by their medians. Something is said where

    no number    the last loss is NaN or infinite
    guessing     the accuracy is that of always giving the most common answer (`Evaluated.chance`), within 10 % of what
                 lies between that and 1; and the loss has not fallen, or is what constant answers cost
    lost         the accuracy is below 60 % of the best before, and the loss has not fallen since the first evaluation
    unsteady     the loss once was twice that of a model that knows nothing, and is still near the latter, with an
                 accuracy nearer to guessing than to 1

and, but for the first, where there is enough to judge by: EVALUATIONS_MIN evaluations. While a run goes on a loss that
has only not fallen yet tells nothing before STEPS_MIN steps of all workers; one that has risen does.

A model that began well, as in a resumed run, has a better accuracy than chance; so has one that overfits, though its
loss rises. Where nobody knows the accuracy of chance (a task without classes, an old trace), only a loss that is no
number is told.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from paceline.core.trace import Evaluated
from paceline.observe.formatting.number_format import accuracy_text

EVALUATIONS_MIN = 6
"""Evaluations below which nothing is said but of a loss that is no number."""
STEPS_MIN = 500
"""Steps of all workers below which a loss that does not fall may be a slow beginning, unless the run is over."""
EPOCHS_MIN = 2.0
"""Epochs below which callers do not ask."""
LATEST_MIN = 3
"""The newest evaluations, of which the judgement is made: a quarter of all, and this many at least."""
NEAR_CHANCE, FAR_FROM_ONE = 0.1, 0.25
"""Fractions of the distance between the accuracy of chance and 1."""
FALLEN = 0.95
"""A loss that is at least this share of another one has not fallen below it."""
RISEN = 1.05
"""A loss that is at least so many times the first one has risen: no slow beginning looks like that."""
KEPT = 0.6
"""Fraction of the best accuracy below which it counts as lost."""
PEAK = 2.0
"""How many times the loss of a model that knows nothing the worst loss must have been."""
NEAR_FIRST = 0.7
"""Fraction of that loss above which the last loss is still near it."""


def collapse(evaluations: Sequence[Evaluated], steps: int, *, over: bool = False) -> str:
    """Returns what is wrong with the model, in a sentence; "" unless the evidence suffices.

    `evaluations` by time; `steps`: of all workers. `over`: the run has had the epochs that it was to have.
    """
    if not evaluations:
        return ""
    last = evaluations[-1]
    if not math.isfinite(last.loss):
        return f"The loss of the model is {last.loss}: training went wrong."
    if len(evaluations) < EVALUATIONS_MIN or not 0 < last.chance < 1:
        return ""
    count = max(LATEST_MIN, len(evaluations) // 4)
    latest = statistics.median(evaluated.loss for evaluated in evaluations[-count:])
    if steps < STEPS_MIN and not over and latest < RISEN * evaluations[0].loss:
        return ""
    return _judged(evaluations[:-count], evaluations[-count:], last.chance)


def _judged(before: Sequence[Evaluated], latest: Sequence[Evaluated], chance: float) -> str:
    """Returns the sentence for the evaluations `before` and the `latest`; "" if none of the cases holds."""
    accuracy = statistics.median(evaluated.accuracy for evaluated in latest)
    loss = statistics.median(evaluated.loss for evaluated in latest)
    first, best = before[0].loss, max(evaluated.accuracy for evaluated in before)
    # Constant answers cost the entropy of the classes, at least -log of the share of the most common one. With classes
    # as uneven as 9 to 1 that is too little to tell anything by.
    constant = -math.log(chance) if chance <= 0.5 else math.inf
    fallen = loss < FALLEN * first
    if accuracy <= chance + NEAR_CHANCE * (1 - chance) and (not fallen or loss >= FALLEN * constant):
        return (
            f"The model does no better than guessing: accuracy {accuracy_text(accuracy)}, and always giving the most "
            f"common answer has {accuracy_text(chance)}; loss {loss:.3g}, {first:.3g} at first."
        )
    if accuracy < KEPT * best and not fallen:
        return (
            f"The model has lost what it had learned: accuracy {accuracy_text(accuracy)}, {accuracy_text(best)} at its "
            f"best; loss {loss:.3g}, {first:.3g} at first."
        )
    peak = max(evaluated.loss for evaluated in before if not math.isnan(evaluated.loss))
    ignorant = max(first, constant) if math.isfinite(constant) else first
    if accuracy <= chance + FAR_FROM_ONE * (1 - chance) and peak > PEAK * ignorant and loss > NEAR_FIRST * ignorant:
        return (
            f"The loss of the model does not fall: {first:.3g} at first, {peak:.3g} at its worst, {loss:.3g} at last; "
            f"accuracy {accuracy_text(accuracy)}."
        )
    return ""


def way_out(scheme: str, parameters: dict[str, Any], lr: float, workers: int, factor: float = 1.0) -> str:
    """Returns what may help, in a sentence.

    `parameters`: all of the scheme, by name. `factor`: what its updates multiply `lr` with.
    """
    if factor != 1:
        return (
            f"{scheme} trains at {lr * factor:.2g}, which is --lr {lr:g} times --lr-scale {factor:.2g}. A way out: "
            "a lower one of the two, --clip-norm, or another scheme."
        )
    if "weighting" not in parameters:
        return f"{scheme} trains at --lr {lr:g}. A way out: a lower one, --clip-norm, or another scheme."
    ways = [f"a lower --lr ({lr:g} now; divided by the {workers} workers it is {lr / workers:.2g})"]
    if parameters["weighting"] == "none":
        ways.append(f"--{scheme}.weighting inverse, by which late gradients count less")
    return f"Gradients come late under {scheme}, the later the more workers. A way out: {', '.join(ways)}, or bsp."
