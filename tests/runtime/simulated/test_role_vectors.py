"""Vectors that the roles of workers compute, counted by scheme."""

from __future__ import annotations

import dataclasses

import pytest

from paceline.core.scheme import make
from paceline.runtime.simulated.role_vectors import RoleVectors, vectors_per_exchange
from tests.observe.fake_runs import summary, worker


@pytest.mark.parametrize(
    ("scheme", "vectors", "why"),
    [
        ("asp", 0.0, "a gradient is pushed and weights are pulled"),
        ("esync", 2.0, "x - w, and w + d"),
        ("diloco", 4.0, "x - w, then v, what w goes along, and w"),
    ],
)
def test_a_role_computes_the_vectors_of_its_box(scheme: str, vectors: float, why: str) -> None:
    for servers in (0, 1, 2) if scheme != "asp" else (1, 2):
        found = vectors_per_exchange(make(scheme, {}), [1.0, 1.0, 3.0], servers)
        assert found == pytest.approx(vectors, rel=0.05), why  # the last exchange is not over


def test_the_scheme_of_a_run_says_what_its_workers_compute() -> None:
    made_up = dataclasses.replace(summary(workers=0), workers=tuple(map(worker, range(3))), parameters={})
    assert RoleVectors.of(dataclasses.replace(made_up, scheme="localsgd")).local_steps
    assert not RoleVectors.of(dataclasses.replace(made_up, scheme="bsp")).local_steps
    assert RoleVectors.of(dataclasses.replace(made_up, scheme="somebody's own")) == RoleVectors()
