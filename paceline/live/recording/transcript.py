"""Writes recorded inputs and decisions as lines for people: what came in, what was decided, and what differs now.

   12    3.251 s  worker 1: Progress steps=40 samples=320 ...
                  send worker 1, evaluator: Total samples=960 epochs=0
>  13    4.007 s  worker 1 is lost: the connection was closed
    - then        record membership party=worker 1 event=lost reason=...
    + now         fail worker 1: ...
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from paceline.live.recording.coordinator_replay import RecordedInput, ReplayedInput

TEXT_MAX = 160
"""Characters of one value."""
_COLUMN = " " * 22
_ROUTINE = {
    "control.Progress",
    "control.Beat",
    "control.Records",
    "control.Ask",
    "control.Want",
    "control.Past",
    "control.SamplesResolved",
}


def is_routine(recorded: RecordedInput) -> bool:
    """Returns True for a report, a question for samples, or a look at the clock, after which nothing was decided that
    changes the run."""
    match recorded.what:
        case ["message", _, dict() as text]:
            routine = next(iter(text)) in _ROUTINE
        case [kind, *_]:
            routine = kind in ("timer", "rendezvous")
        case _:
            return False
    return routine and not recorded.nested and all(_changes_nothing(output) for output in recorded.outputs or [])


def _changes_nothing(output: dict[str, Any]) -> bool:
    match output:
        case {"StartTimer": _} | {"ProgressReported": _} | {"WriteRecords": _}:
            return True
        case {"SendMessage": {"message": dict() as message}}:
            return next(iter(message)) in ("control.Total", "control.Quota", "control.Lease")
    return False


def input_lines(recorded: RecordedInput, *, mark: str = " ") -> Iterator[str]:
    """Yields what came in: the number of the input, its time, and the input, with those that came within it."""
    yield f"{mark}{recorded.number:>6} {recorded.at:>9.3f} s  {input_text(recorded.what)}"
    for what in recorded.nested:
        yield f"{_COLUMN}then at once: {input_text(what)}"


def decided_lines(outputs: Sequence[Any] | None) -> Iterator[str]:
    """Yields what was decided, an action a line."""
    if outputs is None:
        yield f"{_COLUMN}the recording ends here"
    for output in outputs or ():
        yield f"{_COLUMN}{output_text(output)}"


def difference_lines(replayed: ReplayedInput) -> Iterator[str]:
    """Yields an input after which the machine decides something else now; `-` stands before what it decided then."""
    yield from input_lines(replayed.recorded, mark=">")
    then, now = (
        [output_text(one, whole=True) for one in side] for side in (replayed.recorded.outputs or [], replayed.outputs)
    )
    if not (then and now):
        yield from (f"    - then{_COLUMN[10:]}{line}" for line in then or ["nothing"])
        yield from (f"    + now {_COLUMN[10:]}{line}" for line in now or ["nothing"])
        return
    for line in difflib.ndiff(then, now):
        sign, text = line[0], line[2:]
        if sign == "?":
            continue
        before = {"-": "    - then", "+": "    + now ", " ": "          "}[sign]
        yield f"{before}{_COLUMN[10:]}{text}"


def input_text(what: Sequence[Any]) -> str:
    """Returns an input as a line."""
    match what:
        case ["message", str() as src, dict() as text]:
            return f"{src}: {message_line(text)}"
        case ["lost", who, why, cause]:
            return f"{who} is lost ({cause.lower().replace('_', ' ')}): {why}"
        case ["ended", who, why]:
            return f"the process of {who} has ended: {why}"
        case ["timer", timer, number]:
            return f"timer {timer}{f' {number}' if number else ''}"
        case ["stop", reason]:
            return f"stop: {reason}"
        case [question, list() as args, dict() as named]:  # to a machine of a party
            return " ".join([f"{question}:", *map(_argument, args), *_pairs(named)]).removesuffix(":")
        case [kind, *rest]:
            return f"{kind} {' '.join(map(str, rest))}".rstrip()
    return ""


def _argument(value: Any) -> str:
    return message_line(value) if isinstance(value, dict) else str(value)


def party_line(line: Sequence[Any]) -> str:
    """Returns a line of the recording of a worker, a server or the evaluator (`party_recorder.py`)."""
    what, at, who, *rest = line
    words = {"got": "from", "sent": "to"}
    if what in words:
        return f"{at:>12.6f} s  {what:<4} {words[what]} {who}: {message_line(rest[0])}"
    return f"{at:>12.6f} s  {what} {who} {' '.join(map(str, rest))}"


def message_line(text: dict[str, Any]) -> str:
    """Returns a message as its name and fields, those of its envelope behind it."""
    (name, fields), *envelope = text.items()
    told = {key: value for key, value in fields.items() if value is not False and value not in ("", [], {})}
    return " ".join([name.rpartition(".")[2], *_pairs(told), *(f"{key}={value}" for key, value in envelope)])


def output_text(output: dict[str, Any], *, whole: bool = False) -> str:
    """Returns an action as a line. `whole`: long values are not cut, so that two lines differ where the actions do."""
    match output:
        case {"SendMessage": {"to": to, "message": message}} | {"Send": {"to": str() as to, "message": message}}:
            whom = to if isinstance(to, str) else ", ".join(to)
            line = f"send {whom}: {message_line(message)}"
        case {"WriteRecord": {"record": record}}:
            line = " ".join(["record", *_pairs(record)])
        case {"WriteRecords": {"number": number}}:
            line = f"record {number} records of the message"
        case {"RunFailure": {"who": who, "cause": cause}}:
            line = f"fail the run: {who}: {cause}"
        case {"StartTimer": {"timer": timer, "seconds": seconds, "number": number}}:
            line = f"start timer {timer}{f' {number}' if number else ''}: {seconds:g} s"
        case {"Raised": why}:
            line = f"raise {why}"
        case _:
            ((name, value),) = output.items()
            line = " ".join([name, *(_pairs(value) if isinstance(value, dict) else [str(value)])])
    return line if whole else _cut(line, 2 * TEXT_MAX)


def _pairs(fields: dict[str, Any]) -> list[str]:
    return [f"{name}={_cut(_value(value), TEXT_MAX)}" for name, value in fields.items()]


def _value(value: Any) -> str:
    match value:
        case float():
            return f"{value:.6g}"
        case dict() if len(value) == 1 and isinstance(next(iter(value.values())), dict):
            return f"({message_line(value)})"
        case list():
            return f"[{', '.join(map(_value, value))}]"
    return str(value)


def _cut(text: str, length: int) -> str:
    text = text.replace("\n", "\\n")
    return text if len(text) <= length else f"{text[:length]}... ({len(text)} characters)"
