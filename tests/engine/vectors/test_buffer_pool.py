"""Buffers are used again once nobody refers to them."""

from __future__ import annotations

import gc
import itertools
import random
import threading

import numpy as np
import torch

from paceline.engine.vectors.buffer_pool import PAGE_BYTES, WITHIN_PAGE, Pool
from paceline.engine.vectors.flat import Flat, FlatMemory
from tests.engine.vectors.numbers import numbers_of, random_flat


def test_a_chain_of_updates_allocates_nothing_once_it_is_warm(host: Pool) -> None:
    w, g = random_flat(1000), random_flat(1000, 1)
    for _ in range(1000):
        w = w - g * 0.01
    assert host.made <= 2
    assert host.idle(1000) <= 1


def test_idle_buffers_are_bounded_and_can_be_dropped() -> None:
    pool = Pool(idle_max=2, idle_bytes=0, length_min=1)
    held = [pool.take(8) for _ in range(5)]
    assert (pool.made, pool.idle(8)) == (5, 0)
    held.clear()
    assert pool.idle(8) == 2
    pool.clear()
    assert pool.idle(8) == 0


def test_a_buffer_stays_out_while_a_slice_or_tensor_or_memoryview_refers_to_it(host: Pool) -> None:
    memory = FlatMemory()
    v = random_flat(100) + random_flat(100, 1)
    for hold in (
        lambda v: v[10:20],
        lambda v: v * 2.0,
        lambda v: v.value()[3:].view(1, -1),
        lambda v: v.value().numpy(),
        lambda v: memory.bytes_of(v),
        lambda v: memory.bytes_of(v)[8:16],
    ):
        v = random_flat(100) + random_flat(100, 1)
        before = host.idle(100)
        kept = hold(v)
        del v
        assert host.idle(100) == before, "somebody still needs it"
        del kept
        assert host.idle(100) == before + 1


def test_values_never_change_once_handed_out_however_much_is_recycled(host: Pool) -> None:
    rng = random.Random(7)
    live = [(v, numbers_of(v).copy()) for v in (random_flat(64, seed) for seed in range(4))]
    memory = FlatMemory()
    for _ in range(3000):
        (a, _), (b, _) = rng.choice(live), rng.choice(live)
        made = rng.choice(
            [
                lambda a=a, b=b: a - b * 0.3,
                lambda a=a, b=b: (a + b) * 0.5,
                lambda a=a, b=b: memory.join([a[:20], b[20:]]),
                lambda a=a, b=b: a * 0.5 * b * 0.1,
                lambda a=a, b=b: Flat.wrap((a * 0.5).value()),
            ]
        )()
        live.append((made, numbers_of(made).copy()))
        if len(live) > 12:
            live.pop(rng.randrange(len(live)))
        v, then = rng.choice(live)
        assert np.array_equal(numbers_of(v), then, equal_nan=True)
    assert all(np.array_equal(numbers_of(v), then, equal_nan=True) for v, then in live)
    assert host.made < 400, "out of some thousands that were needed"


def test_vectors_may_die_on_any_thread(host: Pool) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        w, g = random_flat(500, seed), Flat.wrap(torch.full((500,), float(seed)))
        for step in range(1, 300):
            w = w - w + g * float(step)
            if not bool((w.value() == seed * step).all()):
                wrong.append(step)
            mailbox.append(w)
            if len(mailbox) > 8:
                mailbox.pop(0)  # perhaps another thread's

    mailbox: list[Flat] = []
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not wrong
    assert host.made < 600, "out of some thousands that were needed"


def test_short_vectors_are_left_to_the_allocator() -> None:
    pool = Pool(length_min=100)
    assert [len(pool.take(n)) for n in (0, 99, 100)] == [0, 99, 100]
    assert pool.made == 1


def test_buffers_begin_far_from_where_the_body_of_a_message_lies_in_a_page() -> None:
    pool = Pool()
    held = [pool.take(length) for length in (16384, 25000, 62500, 250000, 250000, 1 << 20)]
    assert [v.data_ptr() % PAGE_BYTES for v in held] == [WITHIN_PAGE] * len(held)
    assert [v.numel() for v in held] == [16384, 25000, 62500, 250000, 250000, 1 << 20]
    places = sorted((v.data_ptr(), v.data_ptr() + 4 * v.numel()) for v in held)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(places))


def test_a_buffer_in_a_cycle_comes_back_when_the_cycle_is_collected(host: Pool) -> None:
    cycle: list[object] = [random_flat(32) + random_flat(32)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert host.idle(32) == 1
