"""Decides who makes the updates of a scheme with the optimizer of a recipe: servers, or workers where servers cannot.

optimizer                                      with servers
element by element (SGD, Adam, ...)            servers update, each its slices
needs the whole gradient (clip_norm), 1 server the server updates
needs the whole gradient, several servers      workers update, if the scheme has such a form (bsp); else an error
the user's own, not to be named by a path      workers update, if the scheme has such a form; else an error
LBFGS, which evaluates the model again         an error, but for schemes with local steps

A worker that updates while its loop computes (`tiers` with asp inside) is refused what one server is.
"""

from __future__ import annotations

from dataclasses import replace

from paceline.core.errors import ConfigError
from paceline.core.local.local_sgd import AVERAGE
from paceline.core.scheme import Scheme
from paceline.engine.specs import OptimizerRecipe
from paceline.runtime.spec.job_spec import Recipe

LOCAL = "esync, localsgd or diloco"
"""Schemes that errors suggest where local steps would help."""

LBFGS = "torch.optim.lbfgs.LBFGS"
"""The optimizer of torch whose step calls a closure several times."""


def servers_update(scheme: Scheme, servers: int) -> bool:
    """Returns True if servers apply gradients under `scheme`."""
    if scheme.server(servers) is None or not scheme.computes:
        return False
    return scheme.worker(servers).updates_alone is not True


def fitted(recipe: Recipe, servers: int) -> Recipe:
    """Returns `recipe`, with updates made by workers where servers cannot make them and the scheme has such a form.

    Raises ConfigError, with the way out, where it has none, and for numbers that no optimizer has.
    """
    from paceline.engine.optim.optimizers import check  # here, as others have no use for torch

    check(recipe.optimizer)
    _refuse_average(recipe)
    scheme = recipe.make_scheme()
    if scheme.computes and recipe.optimizer.by_path is not None and recipe.optimizer.by_path.kind == LBFGS:
        raise ConfigError(
            f"{recipe.scheme} takes one gradient a step, and LBFGS evaluates the model several times: take a scheme "
            f"with local steps ({LOCAL}), and call pace.optimizer.step(closure)"
        )
    if scheme.worker(servers).updates_meanwhile:
        reason = _refusal(recipe.optimizer, 1)
        if reason:
            raise ConfigError(f"{recipe.scheme}: the server of a group updates while its speaker computes; {reason}")
        return recipe
    reason = _refusal(recipe.optimizer, servers) if servers_update(scheme, servers) else ""
    if not reason:
        return recipe
    whole = scheme.with_whole_updates()
    if servers_update(whole, servers):
        raise ConfigError(f"{recipe.scheme}: {reason}, or a scheme whose workers make the steps: bsp, {LOCAL}")
    return replace(recipe, parameters=whole.parameters())


def check_several(recipe: Recipe) -> None:
    """Raises ConfigError where a step cannot train one model of several."""
    scheme, codecs = recipe.make_scheme(), recipe.codecs
    instead = f"take bsp, asp, ssp or a scheme with local steps ({LOCAL})"
    if scheme.own_momentum:
        raise ConfigError(f"{scheme.name} moves what a step does not train, so it takes one model: {instead}")
    if scheme.mixes_steps:
        raise ConfigError(f"{scheme.name} would mix steps of several models in one update: {instead}")
    if scheme.computes and getattr(scheme, "steps", 1) > 1:
        raise ConfigError(f"{scheme.name}.steps would add gradients of several models up: leave it at 1")
    if scheme.computes and (codecs.up, codecs.down) != ("none", "none"):
        raise ConfigError(
            f"{scheme.name}: a codec keeps back parts of a gradient, which would come with a step of another model: "
            f"leave it out, or take a scheme with local steps ({LOCAL})"
        )


def _refusal(optimizer: OptimizerRecipe, servers: int) -> str:
    """Returns why that many servers cannot make steps, with a way out; "" where they can."""
    if optimizer.by_path is not None and not optimizer.by_path.path:
        return (
            f"servers cannot make the steps of {optimizer.by_path.kind}: name what makes it, "
            'join(model, optimizer="package.module:function")'
        )
    if optimizer.clip_norm and servers > 1:
        return f"clip_norm needs the norm of the whole gradient, of which {servers} servers have a part each: give one"
    return ""


def _refuse_average(recipe: Recipe) -> None:
    """Raises ConfigError where optimizer state is to be averaged that the project cannot interpret."""
    if recipe.optimizer.by_path is not None and recipe.parameters.get("memory") == AVERAGE:
        kind = recipe.optimizer.by_path.kind
        raise ConfigError(
            f"{recipe.scheme}: memory={AVERAGE!r} is for plain SGD, Adam and AdamW, not for {kind}: give keep or reset"
        )
