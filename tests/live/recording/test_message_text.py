"""Messages, inputs and decisions as JSON, and back."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import SendMessage, StartTimer, Timer
from paceline.core.coordination.party import worker
from paceline.core.errors import ConfigError
from paceline.core.message import named, vector_fields
from paceline.core.paramserver.gated_server import Push
from paceline.core.sharding import Layout
from paceline.live.collectives.store import Put
from paceline.live.protocol.transport import Envelope, Kind
from paceline.live.recording.message_text import (
    actions_text,
    envelope_of,
    envelope_text,
    is_whole,
    json_of,
    message_of,
    message_text,
    plain,
)
from tests.live.scripted_parties import progress, ready

PLAN = control.Plan(
    workers=2,
    servers=1,
    length=10,
    layout=Layout((0, 4, 10), (0, 0)),
    seconds_per_step=(0.5, math.inf),
    optimizer="sgd",
    notes=("a", "b"),
)


@pytest.mark.parametrize(
    "message",
    [
        progress(8),
        ready(),
        PLAN,
        Put(key="0/0", value=b"\x00\xff", instead_of=None),
        control.SamplesResolved(contributions=((0, "applied", ((0, 3, 7),)),)),
        control.Roster(addresses={"worker 0": "here"}, hosts={}, gone=(1,)),
    ],
)
def test_a_message_is_read_as_it_was_written(message: Any) -> None:
    text = json.loads(json_of(message_text(message)))
    assert message_of(text) == message
    envelope = Envelope(Kind.CALL, message, 7, 2, 4)
    assert envelope_of(json.loads(json_of(envelope_text(envelope)))) == envelope


def test_nan_and_infinity_survive() -> None:
    report = control.EvaluationReport(at=1.0, samples=1, accuracy=0.5, loss=math.nan, seconds=0.1)
    assert math.isnan(message_of(json.loads(json_of(message_text(report)))).loss)


def test_of_a_vector_only_its_length_is_kept() -> None:
    text = message_text(Push(g=np.ones(1200, np.float32), clock=3, samples=8))
    ((name, fields),) = text.items()
    assert (fields["g"], fields["clock"]) == ("[1200]", 3)
    assert vector_fields(named(name))
    assert not is_whole(text)
    assert is_whole(message_text(progress(1)))


def test_a_message_of_another_version_is_refused() -> None:
    with pytest.raises(ConfigError, match="no message control.Teleport"):
        is_whole({"control.Teleport": {}})
    with pytest.raises(ConfigError, match=r"control.Quota cannot be read by this version"):
        message_of({"control.Quota": {"samples": "many"}})


def test_an_action_is_its_name_and_fields() -> None:
    actions = (SendMessage((worker(0),), control.Quota(samples=3)), StartTimer(0.25, Timer.MEMBERS))
    assert actions_text(actions, folds_records=False) == [
        {"SendMessage": {"to": ["worker 0"], "message": {"control.Quota": {"samples": 3}}}},
        {"StartTimer": {"seconds": 0.25, "timer": "MEMBERS", "number": 0}},
    ]


def test_an_error_is_its_text() -> None:
    assert [plain(ValueError("no")), plain(ValueError())] == ["no", "ValueError()"]
