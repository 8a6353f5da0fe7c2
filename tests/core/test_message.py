import itertools
from dataclasses import field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.effects import Reply, Tell, Wait
from paceline.core.message import gather, message, name_of, named, record, scalar_fields, scatter, size, vector_fields
from paceline.core.paramserver.gated_server import Pull, Push, Weights
from paceline.core.vector import Ghost, Vector, cut
from paceline.schemes.decoupled import LearnerFragment
from paceline.sim.kernel.vectors import memory_for


def test_vectors_are_cut_and_scalars_are_copied() -> None:
    push = Push(g=np.arange(7.0), clock=3, samples=5)
    parts = scatter(push, cut(7, 3))
    assert [part.g.tolist() for part in parts] == [[0, 1], [2, 3], [4, 5, 6]]
    assert {(part.clock, part.samples) for part in parts} == {(3, 5)}
    assert sum(map(size, parts)) == size(push) == 56


def test_what_has_no_vectors_or_goes_to_one_shard_travels_as_it_is() -> None:
    pull, push = Pull(), Push(g=np.zeros(2), clock=1, samples=1)
    assert all(part is pull for part in scatter(pull, cut(7, 3)))
    assert scatter(push, cut(2, 1)) == [push]
    assert gather([push], memory_for(push.g)) is push


@pytest.mark.parametrize("w", [np.arange(10, dtype=np.float32), Ghost(10)])
def test_gathering_undoes_scattering(w: Vector) -> None:
    weights = Weights(w=w, version=4)
    again = gather(scatter(weights, cut(10, 4)), memory_for(w))
    assert (len(again.w), again.w.nbytes, again.version) == (10, 40, 4)
    if isinstance(w, np.ndarray):
        assert (again.w == w).all()
        assert again.w.dtype == w.dtype


def test_the_version_of_joined_weights_is_that_of_the_shard_furthest_behind() -> None:
    parts = [Weights(w=np.zeros(1), version=version) for version in (7, 5, 6)]
    assert gather(parts, memory_for(np.zeros(1))).version == 5


def test_messages_are_slotted_and_keyword_built_and_known_by_name() -> None:
    push = Push(g=Ghost(1), clock=1, samples=1)
    with pytest.raises(AttributeError):
        push.clocks = 2  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        Push(Ghost(1), 1, 1)  # type: ignore[misc]
    assert name_of(Push) == "clocked.Push"
    assert named("clocked.Push") is Push
    assert (vector_fields(Push), scalar_fields(Push)) == (("g",), ("clock", "samples", "data", "unused"))


def test_records_are_compared_by_class_and_values_and_shown_as_a_call() -> None:
    one, same, other = Reply(to=1, message="a"), Reply(to=1, message="a"), Reply(to=2, message="a")
    assert one == same
    assert one != other
    assert one != Tell(to=1, message="a")
    assert {one, same, other} == {one, other}
    assert repr(one) == "Reply(to=1, message='a')"
    assert Pull() == Pull()
    assert hash(Pull()) == hash(Pull())
    assert (repr(Pull()), repr(Wait(3))) == ("Pull(last=0)", "Wait(ticket=3)")
    assert Wait(3) == Wait(3) != Wait(4)


def test_a_record_that_says_itself_how_it_is_shown_or_compared_is_left_so() -> None:
    @record
    class Odd:
        x: int
        note: str = field(default="", compare=False, repr=False)

        def __repr__(self) -> str:
            return "odd"

    @record
    class Plain:
        x: int
        note: str = field(default="", compare=False, repr=False)

    assert repr(Odd(1)) == "odd"
    assert Plain(1, "a") == Plain(1, "b")
    assert repr(Plain(1, "a")).endswith("Plain(x=1)")


def test_two_messages_of_one_name_are_refused() -> None:
    class Impostor:
        x: int

    with pytest.raises(ValueError, match=r"two messages are called clocked\.Push"):
        message("clocked.Push")(Impostor)


def test_a_message_is_called_what_its_class_declares_and_not_after_its_file() -> None:
    moved = message("somewhere.Else")(type("Moved", (), {"__annotations__": {"x": int}, "__module__": "another.file"}))
    assert (name_of(moved), named("somewhere.Else")) == ("somewhere.Else", moved)


COUNTERS: dict[str, Any] = {
    **dict.fromkeys(("series", "turn", "clock", "samples", "tokens", "steps"), 1),
    "speed": 1.0,
}


def test_a_vector_that_is_not_the_whole_model_is_cut_in_proportion() -> None:
    shards = cut(10, 3)
    pieces = scatter(Push(g=np.arange(6), clock=1, samples=2), shards)
    assert [piece.g.tolist() for piece in pieces] == [[0, 1], [2, 3], [4, 5]]
    assert gather(pieces, memory_for(np.zeros(1))).g.tolist() == list(range(6))


@given(st.integers(1, 60), st.lists(st.integers(1, 20), min_size=1, max_size=12))
def test_the_pieces_of_a_part_of_the_model_are_no_longer_than_the_shards(length: int, sizes: list[int]) -> None:
    edges = [0, *itertools.accumulate(sizes)]
    shards = [slice(a, b) for a, b in itertools.pairwise(edges)]
    length = min(length, edges[-1])
    pieces = [push.g for push in scatter(Push(g=np.arange(length), clock=1, samples=2), shards)]
    assert np.concatenate(pieces).tolist() == list(range(length))
    assert all(len(piece) <= size for piece, size in zip(pieces, sizes, strict=True))


def test_a_run_of_the_model_goes_to_the_shards_that_hold_it() -> None:
    whole = np.arange(10)
    for start, stop in ((0, 10), (2, 4), (3, 7), (9, 10)):
        run = LearnerFragment(delta=whole[start:stop], offset=start, **COUNTERS)
        pieces = [part.delta for part in scatter(run, cut(10, 3))]
        held = [list(whole[max(start, s.start) : max(start, min(stop, s.stop))]) for s in cut(10, 3)]
        assert [list(piece) for piece in pieces] == held
