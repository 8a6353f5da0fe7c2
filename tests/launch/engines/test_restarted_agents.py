"""Agents that their engine starts again."""

from __future__ import annotations

from paceline.launch.engines.ray import AgentRestarts


def test_an_agent_of_ray_that_dies_is_started_again_unless_it_dies_at_once_again_and_again() -> None:
    clock = [0.0]
    incarnations = AgentRestarts(lambda: clock[0])

    def incarnation(seconds: float, why: str) -> bool:
        incarnations.begins(0)
        clock[0] += seconds
        return incarnations.again(0, why)

    assert [incarnation(1.0, "it ended with -9") for _ in range(3)] == [True, True, False]
    assert [incarnation(60.0, "its node died") for _ in range(5)] == [True] * 5
    assert not incarnation(60.0, "")  # in order
