import json

import pytest

from paceline.core.trace import (
    KINDS,
    Applied,
    CpuUsed,
    Decided,
    Ended,
    Evaluated,
    Gated,
    Leased,
    LinkTraffic,
    LostWork,
    MemberChange,
    Record,
    ResourceUse,
    Span,
    from_dict,
    from_row,
    to_dict,
    to_row,
)

RECORDS = [
    Span(at=1.5, rank=2, activity="computing", seconds=0.25, steps=1, samples=32),
    Applied(at=2.0, shard=1, ranks=(0, 3), version=7, staleness=2, weight=0.5, samples=64),
    Decided(at=2.5, party="server 0", rank=1, verdict="wait", reason="2 clocks ahead of worker 0", whom=(0,)),
    Gated(at=2.75, shard=0, rank=1, number=17, refused=True, reason="not finite"),
    Evaluated(at=3.0, accuracy=0.9, loss=0.1, samples=4096, seconds=0.5),
    MemberChange(at=3.5, party="worker 1", event="left", reason="asked to"),
    LostWork(at=2.5, party="worker 0", rank=1, steps=5, samples=40, group=0),
    Leased(at=3.75, epochs=1, done=70, twice=0, returned=8, dropped=4, undone=2, left_out=1),
    ResourceUse(at=3.8, party="worker 1", memory_bytes=1 << 30, cores=1.5, device_bytes=5, device_total_bytes=9),
    LinkTraffic(at=3.9, party="worker 1", other="server 0", sent=10, received=20, seconds=2.0),
    CpuUsed(at=3.9, party="server 0", seconds=0.5, cores=2),
    Ended(at=4.0, reason="all samples were seen"),
]


def test_every_kind_of_record_is_tried_here() -> None:
    assert {type(record) for record in RECORDS} == set(KINDS.values())


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_survives_a_line_of_json(record: Record) -> None:
    line = json.dumps(to_dict(record))
    assert KINDS[json.loads(line)["kind"]] is type(record)
    assert from_dict(json.loads(line)) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_survives_a_row_of_json(record: Record) -> None:
    assert from_row(json.loads(json.dumps(to_row(record)))) == record


def test_a_row_is_the_kind_and_all_values_in_their_order() -> None:
    assert to_row(RECORDS[0]) == ("span", 1.5, 2, "computing", 0.25, 1, 32, 0.0, 0, 0.0)


def test_a_row_of_an_older_recording_has_the_defaults_of_what_came_later() -> None:
    row = to_row(RECORDS[0])
    assert from_row(row[:-1]) == from_row(row) == RECORDS[0]


def test_a_row_of_an_unknown_kind_and_one_of_another_length_are_refused() -> None:
    with pytest.raises(KeyError):
        from_row(("rumour", 0.0))
    with pytest.raises(ValueError, match="longer"):
        from_row(("ended", 0.0, "", "you"))
    with pytest.raises(ValueError, match="shorter"):
        from_row(("ended", 0.0))


def test_what_is_as_by_default_is_not_written() -> None:
    assert to_dict(RECORDS[0]).keys() == {"kind", "at", "rank", "activity", "seconds", "steps", "samples"}
    assert to_dict(MemberChange(at=0.0, party="worker 1", event="joined")).keys() == {
        "kind",
        "at",
        "party",
        "event",
    }


def test_reading_leaves_the_line_as_it_was() -> None:
    line = to_dict(RECORDS[1])
    from_dict(line)
    assert line == to_dict(RECORDS[1])


def test_an_unknown_kind_and_an_unknown_field_are_refused() -> None:
    with pytest.raises(KeyError):
        from_dict({"kind": "rumour", "at": 0.0})
    with pytest.raises(TypeError):
        from_dict({"kind": "ended", "at": 0.0, "reason": "", "blame": "you"})
    with pytest.raises(TypeError):
        from_dict({"kind": "ended", "at": 0.0})


def test_records_are_compared_by_value() -> None:
    assert {from_dict(to_dict(record)) for record in RECORDS} == set(RECORDS)
