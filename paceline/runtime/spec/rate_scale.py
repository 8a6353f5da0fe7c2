"""Decides what the updates of a scheme multiply the user's learning rate with (`--lr-scale`).

The rate that the user gives is that of the plain loop: one update for each mini-batch. BSP on n workers makes one
update of n batches at that rate, and so it equals one process with the joined batch. A scheme that makes n updates of
one contribution each would move the model n times as far for the same samples, along gradients that are n updates
late. `Scheme.rate_share` says how much of such a round an update is, and that is the factor: n updates then go as far
as one of BSP. Gupta et al. 2016 (arXiv 1509.04210) divide by the mean staleness, which is n; read the other way round
it is the rule of Goyal et al. 2017 (arXiv 1706.02677), a rate in proportion to the batch.

    --lr-scale   factor
    auto         the share
    none         1
    a number     that number, whatever the scheme

It is the same for all optimizers. For Adam batches of another size ask for the square root (Malladi et al. 2022), but
that is a rule about noise: with gradients that are n updates late its larger steps diverge (16 workers, digits).

The factor acts where an update is made of gradients, by servers or by a worker. Local steps are those of the plain
loop, so they keep its rate; and a run of one worker is the plain loop, so it is never scaled.
"""

from __future__ import annotations

from dataclasses import replace

from paceline.core.errors import ConfigError
from paceline.core.scheme import Scheme
from paceline.engine.specs import AUTO, parse_lr_scale
from paceline.runtime.spec.job_spec import Recipe

RATE = "(--lr-scale"
"""Is in the line about another rate than the optimizer's."""


def with_rate(recipe: Recipe, workers: int, lr_scale: str) -> Recipe:
    """Returns `recipe` with the factors of its updates, on so many workers. Raises ConfigError for a bad `lr_scale`."""
    try:
        given = parse_lr_scale(lr_scale)
    except ValueError as error:
        raise ConfigError(f"lr_scale = {lr_scale!r}: {error}") from None
    if workers == 1:
        return recipe
    if given != AUTO:
        return replace(recipe, rate_factors=(float(given),))
    schemes = recipe.make_scheme().in_turn()
    shares = [own.rate_share(workers) for own in schemes]
    whys = [f"{own.name} {of.why}" for own, of in zip(schemes, shares, strict=True) if of.share != 1]
    return replace(recipe, rate_factors=tuple(of.share for of in shares), rate_why="; ".join(whys))


def factor_of(scheme: Scheme, workers: int, lr_scale: str) -> float:
    """Returns the factor of the last phase, for what is said before there is a recipe; `lr_scale` has been checked."""
    given = parse_lr_scale(lr_scale)
    if workers == 1:
        return 1.0
    return scheme.in_turn()[-1].rate_share(workers).share if given == AUTO else float(given)


def rate_note(recipe: Recipe) -> str:
    """Returns the line that tells the user of another rate than the optimizer's; "" where updates have that one."""
    scaled = [factor for factor in recipe.rate_factors if factor != 1]
    if not scaled:
        return ""
    lr, factor = recipe.optimizer.lr, scaled[0]
    rate = f"the rate {lr:g} is multiplied by {factor:.3g}, which is {lr * factor:.3g}"
    if not recipe.rate_why:
        return f"{recipe.scheme}: {rate}, where an update is made of gradients (--lr-scale)"
    return f"{recipe.rate_why}: {rate} (--lr-scale none: as given)"
