"""Messages to and from the fork server."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.launch.local.fork_messages import Fork, ForkRequest, SendSignal
from paceline.launch.local.line_messages import LineDecoder, encode

SAID = [Fork(spec="{}", party="worker 0", log="runs/\udcff/log", environment={"K": "\n"}), SendSignal(pid=1, number=9)]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_messages_come_back_as_they_were_in_whatever_pieces_they_arrive(sizes: list[int]) -> None:
    decoder: LineDecoder[ForkRequest] = LineDecoder(ForkRequest)
    data, came = b"".join(map(encode, SAID)), []
    for size in [*sizes, len(data)]:
        decoder.feed(data[:size])
        data = data[size:]
        while decoder.has_message:
            came.append(decoder.take())
    assert came == SAID
