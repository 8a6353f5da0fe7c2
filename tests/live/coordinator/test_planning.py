"""What the coordinator decides from what everybody has said of itself: is a core idle while others compute?"""

from __future__ import annotations

import re

import pytest

from paceline.live.coordinator.planning import crowded, other_model
from paceline.live.protocol.control_messages import Hello, Ready


def hello(host: str = "here", device: str = "cpu", cores: int = 2) -> Hello:
    return Hello(address="a", pid=1, host=host, device=device, cores=cores)


@pytest.mark.parametrize(
    ("workers", "servers", "why"),
    [
        ([hello()] * 2, [hello()], "3 processes of here share 2 cores"),
        ([hello(cores=1)], [hello(cores=1)], "2 processes of here share 1 core"),
        ([hello(), hello(cores=1)], [hello()], "3 processes of here share 1 core"),
        ([hello()] * 3, [], "3 processes of here share 2 cores"),
        ([hello()], [hello()], ""),
        ([hello()] * 2, [hello("there")], ""),
        ([hello(), hello("there")], [hello()], ""),
        ([hello(device="cuda:0"), hello(device="cuda:1")], [hello()], ""),
        ([hello(device="cuda:0"), hello()], [hello()] * 2, "3 processes of here share 2 cores"),
        ([hello(cores=0)] * 2, [hello()], ""),
    ],
    ids=[
        "two workers and a server",
        "one core",
        "one process may use fewer",
        "no server",
        "a core for each",
        "the server elsewhere",
        "a worker elsewhere",
        "GPUs compute",
        "one of them does",
        "nobody looked",
    ],
)
def test_a_core_is_idle_unless_more_compute_than_are(workers: list[Hello], servers: list[Hello], why: str) -> None:
    assert crowded(workers, servers) == why


def ready(recipe: str, length: int = 10) -> Ready:
    return Ready(length=length, fingerprint=f"names/rest/{recipe[-8:]}", seconds_per_step=0.0, optimizer=recipe)


@pytest.mark.parametrize(
    ("recipe", "length", "words"),
    [
        ('{"seed":0,"loaded":false}', 10, "trains in another way than worker 0: its loaded differ;"),
        ('{"seed":1,"loaded":false}', 10, "its loaded, seed differ;"),
        ('{"seed":0,"loaded":false}', 11, r"trains another model than worker 0 \(11 against 10 parameters"),
        ("[" * 5000, 10, "trains another model than worker 0"),
        ("7", 10, "trains another model than worker 0"),
    ],
)
def test_a_worker_that_does_not_fit_is_told_in_what(recipe: str, length: int, words: str) -> None:
    assert re.search(words, other_model(1, ready(recipe, length), ready('{"seed":0,"loaded":true}')))


def test_one_that_fits_is_told_nothing() -> None:
    assert other_model(1, ready("{}"), ready("{}")) == ""
