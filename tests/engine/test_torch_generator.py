"""Draws from a seed leave torch's global generator as it was, whatever other threads do."""

from __future__ import annotations

import threading

import pytest
import torch

from paceline.engine.torch_generator import seeded, torch_generator


def test_the_same_seed_gives_the_same_numbers_and_the_script_draws_on_undisturbed() -> None:
    torch.manual_seed(1)
    first = torch.rand(3)
    torch.manual_seed(1)
    drawn = []
    for _ in range(2):
        with seeded(7):
            drawn.append(torch.rand(3))
    assert torch.equal(*drawn)
    assert torch.equal(torch.rand(3), first)


def test_an_error_restores_the_generator_too() -> None:
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError), seeded(7):
        torch.rand(1)
        raise RuntimeError
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch_generator.locked()


def test_two_threads_take_turns() -> None:
    inside, other = threading.Event(), []

    def draw() -> None:
        inside.set()
        with seeded(3):
            other.append(torch.rand(2))

    with seeded(5):
        thread = threading.Thread(target=draw)
        thread.start()
        assert inside.wait(10)
        mine = torch.rand(2)
        assert other == []
    thread.join(10)
    with seeded(3):
        assert torch.equal(other[0], torch.rand(2))
    with seeded(5):
        assert torch.equal(mine, torch.rand(2))
