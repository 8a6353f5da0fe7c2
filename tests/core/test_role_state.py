"""Every attribute of every role is kept for a later run, or declared to begin anew: a new scheme cannot forget it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks._small_rounds import SMALL
from paceline.core.role import Role, RoleContext, declared
from paceline.core.scheme import make, names

OF_ALL = vars(Role(None, RoleContext(me=0, workers=(0, 1), w=None, update=lambda w, g, samples: w))).keys() | {"rng"}
"""What the base class sets: the context, the weights, which are the model, and the samples, which the run counts."""
IN_TABLES = {"version", "clocks", "seen", "shift", "untold", "done"}
"""What `ClockedServer.state_dict` has, which a resumed server takes up before anything else."""
BESIDES = {"phase", "inner", "left"}
"""Of roles that pass on to a role of the present phase."""


def roles() -> Iterator[tuple[str, type[Role], Role]]:
    """Each role that a checkpoint is made of, of every scheme and of each of its variants."""
    for name in names():
        for parameters in SMALL.get(name, [{}]):
            scheme = make(name, parameters)
            for servers in (0, 1):
                for box in (scheme.worker(servers), scheme.server(servers)):
                    if box is not None and (servers or scheme.Server is None or scheme.Equals is not None):
                        place = RoleContext(
                            me=0, workers=(0, 1), w=np.zeros(12, dtype=np.float32), update=lambda w, g, samples: w
                        )
                        yield f"{name}-{box.__qualname__}-{parameters}", box, box(scheme, place)


ROLES = {label: (box, role) for label, box, role in roles()}


def assigned(box: type[Role]) -> set[str]:
    """The attributes that the code of a class or of its base classes assigns."""
    found: set[str] = set()
    for cls in box.__mro__[: box.__mro__.index(Role)]:
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls)))):
            stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            if stored and isinstance(node.value, ast.Name) and node.value.id == "self":
                found.add(node.attr)
    return found - {name for name in found if isinstance(getattr(box, name, None), property)}


@pytest.mark.parametrize("label", ROLES)
def test_every_attribute_of_a_role_is_kept_or_declared_to_begin_anew(label: str) -> None:
    box, role = ROLES[label]
    lists = (*declared(box, "common"), *declared(box, "private"), *declared(box, "saved"), *declared(box, "transient"))
    known = OF_ALL | set(lists) | (IN_TABLES if role.goes_back else set())
    forgotten = (vars(role).keys() | assigned(box)) - known
    assert not forgotten, "name it in `saved` of its class, or in `transient` if it begins anew"


@pytest.mark.parametrize("label", ROLES)
def test_what_a_role_keeps_is_taken_up_by_a_fresh_one(label: str) -> None:
    box, role = ROLES[label]
    fresh = box(role.scheme, RoleContext(me=0, workers=(0, 1), w=role.w, update=role.update))
    fresh.load_state(role.state())
    assert fresh.state().keys() == role.state().keys()
