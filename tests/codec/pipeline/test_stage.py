"""Between a party and the wire: what is encoded, what is remembered, what is refused."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from paceline.codec import Encoded, read
from paceline.codec.encoded import WHOLE
from paceline.codec.pipeline.stage import Stage
from paceline.core.collective.mean_server import Averaged, Part
from paceline.core.effects import Mean
from paceline.core.errors import ProtocolError
from paceline.core.message import STATE, Nature, message, nature_of
from paceline.core.vector import Ghost, Vector
from paceline.sim.kernel.vectors import ArrayMemory, GhostMemory
from tests.codec.pipeline.stages import Gradient, numbers, room, stage

MEMORY = ArrayMemory(np.zeros(1, np.float32))


N = 64


@message("test_stage.Model")
class Model:
    carries: ClassVar[Nature] = STATE
    w: Vector


class Line:
    """A worker and a server, and what goes from the one to the other."""

    def __init__(self, codec: str) -> None:
        self.worker, self.server = stage(codec), stage(codec, of_server=True)

    def pass_on(self, sent: Any, slice: int = 0, to: str = "server") -> Any:
        return self.server.incoming("worker", self.worker.outgoing(to, slice, sent), room, from_server=False)


def test_without_a_codec_messages_pass_as_they_are() -> None:
    sent = Gradient(g=numbers(1))
    assert stage("none").outgoing("server", 0, sent) is sent


@pytest.mark.parametrize("codec", ["2bit(threshold=1.0)", "1bit", "topk(ratio=0.1)", "randomk(ratio=0.1)"])
def test_of_gradients_nothing_is_lost_for_ever(codec: str) -> None:
    line, total, arrived = Line(codec), np.zeros(N), np.zeros(N)
    for seed in range(20):
        total += numbers(seed)
        arrived += line.pass_on(Gradient(g=numbers(seed))).g
    (row,) = line.worker._rows.values()
    assert row.residual is not None
    assert (arrived + row.residual.left).tolist() == total.tolist()


def test_each_slice_each_receiver_and_each_series_has_a_residual_of_its_own() -> None:
    line = Line("topk(ratio=0.01)")
    ones = np.ones(N, np.float32)
    sent = [
        (Gradient(g=ones), 0, "server"),
        (Gradient(g=ones), 1, "server"),
        (Gradient(g=ones), 0, "other"),
        (Part.of(Mean(ones, (0, 1), "a")), 0, "server"),
        (Part.of(Mean(ones, (0, 1), "b", series=1)), 0, "server"),
    ]
    arrived = [line.pass_on(what, slice, to) for what, slice, to in sent]
    assert [int(np.flatnonzero(getattr(a, "g", getattr(a, "v", None)))[0]) for a in arrived] == [0] * 5


def test_what_is_not_finite_travels_as_it_is() -> None:
    line, g = Line("2bit"), numbers(1)
    g[3] = np.nan
    assert np.isnan(line.pass_on(Gradient(g=g)).g[3])


@pytest.mark.parametrize("codec", ["2bit", "sign(block=8)", "topk(ratio=0.1)", "randomk(ratio=0.1)", "dgc(ratio=0.1)"])
def test_small_tensors_arrive_as_they_were_and_nothing_of_the_others_is_lost(codec: str) -> None:
    parts = (slice(0, 3), slice(40, 41))
    worker = Stage(MEMORY, nature_of, up=read(codec), down=None, small={0: parts})
    server = stage(codec, of_server=True)
    for seed in range(4):
        sent = worker.outgoing("server", 0, Gradient(g=numbers(seed)))
        got = server.incoming("worker", sent, room, from_server=False).g
        for part in parts:
            assert got[part].tolist() == numbers(seed)[part].tolist()
    (row,) = worker._rows.values()
    assert row.residual is not None
    assert [row.residual.left[part].tolist() for part in parts] == [[0, 0, 0], [0]]
    assert len(sent.g.data) == sent.g.nbytes == read(codec).size(N, 3) + 4 * 4 + 8 * 2  # type: ignore[union-attr]


@pytest.mark.parametrize("table", [(62, 3), (0, 2**31), (2**32 - 1, 2), (0, 0, 0, 0, 0, 0)])
def test_exact_parts_that_do_not_fit_are_refused(table: tuple[int, ...]) -> None:
    data = np.concatenate([np.zeros(16 + 12, np.uint8), np.array(table, np.uint32).view(np.uint8)])
    wrong = Encoded("2bit", N, data, exact=len(table) // 2 if len(table) < 6 else 6)
    with pytest.raises(ProtocolError):
        stage("2bit", of_server=True).incoming("worker", Gradient(g=wrong), room, from_server=False)


# ---- weights -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("codec", ["topk(ratio=0.1)", "randomk(ratio=0.1)", "sign(block=8)"])
def test_weights_that_stand_still_are_reached_by_differences(codec: str) -> None:
    line = Line(codec)
    first = line.pass_on(Model(w=numbers(0))).w
    assert first.tolist() == numbers(0).tolist()
    gaps = [float(np.abs(line.pass_on(Model(w=numbers(1))).w - numbers(1)).max()) for _ in range(150)]
    assert gaps[-1] < 0.05 * gaps[0]


def test_both_sides_hold_the_same_weights_bit_for_bit() -> None:
    line, random = Line("sign(block=8)"), np.random.default_rng(0)
    w = random.standard_normal(N).astype(np.float32)
    for _ in range(50):
        w = w + random.standard_normal(N).astype(np.float32) * np.float32(0.01)
        arrived = line.pass_on(Model(w=w)).w
    (row,) = line.worker._rows.values()
    assert row.held is not None
    assert arrived.tobytes() == row.held.tobytes()


def test_after_a_lost_connection_weights_are_sent_whole_again() -> None:
    line = Line("topk(ratio=0.1)")
    line.pass_on(Model(w=numbers(0)))
    line.worker.lost("server")
    line.server.lost("worker")
    assert line.worker.outgoing("server", 0, Model(w=numbers(1))).w.codec == WHOLE


def test_a_residual_outlives_a_lost_connection() -> None:
    line, big = Line("topk(ratio=0.01)"), np.arange(N, 0, -1).astype(np.float32)
    line.pass_on(Gradient(g=big))
    line.worker.lost("server")
    line.server.lost("worker")
    again = line.pass_on(Gradient(g=np.zeros(N, np.float32))).g
    assert again.tolist() == [0, N - 1, *[0] * (N - 2)]


def test_a_difference_to_what_is_not_held_is_refused() -> None:
    line = Line("topk(ratio=0.1)")
    line.worker.outgoing("server", 0, Model(w=numbers(0)))  # never arrives
    with pytest.raises(ProtocolError, match="the difference to vector 1 of a row of which 0 is held"):
        line.pass_on(Model(w=numbers(1)))


def test_weights_that_all_get_are_encoded_once() -> None:
    server, w = stage("none", down="int8", of_server=True), numbers(1)
    one = server.outgoing("worker 0", 0, Averaged(v=w, weight=1.0)).v
    assert server.outgoing("worker 1", 0, Averaged(v=w, weight=1.0)).v is one


# ---- vectors without numbers -------------------------------------------------------------------------------------
def test_vectors_without_numbers_shrink_as_those_with_numbers() -> None:
    ghosts, worker = stage("dgc(warmup=2)", memory=GhostMemory()), stage("dgc(warmup=2)")
    for _ in range(4):
        of_ghost = ghosts.outgoing("server", 0, Gradient(g=Ghost(N)))
        assert of_ghost.g.nbytes == worker.outgoing("server", 0, Gradient(g=numbers(1))).g.nbytes
    arrived = stage("dgc", memory=GhostMemory()).incoming(
        "worker", of_ghost, lambda lengths, _: [Ghost(n) for n in lengths], from_server=False
    )
    assert isinstance(arrived.g, Ghost)
    assert len(arrived.g) == N
