"""Says in words what a run is at: the headline of the page. All of it follows from the verdict and from how the run
ended, so no two parts of the page can differ.

    tone      title                     sentence
    failed    The run has failed        its cause
    over      The run is over           why and when it ended, and what the workers waited for
    held      Who holds whom up         what the workers wait for, where that is an alert
    calm      Who holds whom up         the same, where it is none
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.observe.formatting.number_format import counted, percent, seconds_text
from paceline.observe.runs.summary import FAILED
from paceline.observe.watch.state import PageState
from paceline.observe.watch.waits.bottleneck import communicating_s, slow_links
from paceline.observe.watch.waits.verdict import WaitVerdict
from paceline.observe.watch.waits.worker_rates import ROUNDS_MIN

TITLE = "Who holds whom up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tense:
    """Holds the verbs of a run that goes on, or of one that is over."""

    hold: str
    holds: str
    need: str
    wait: str
    takes: str
    is_: str
    would: str
    of: str


NOW = Tense(hold="hold", holds="holds", need="need", wait="wait", takes="takes", is_="is", would="would make", of="")
THEN = Tense(
    hold="held",
    holds="held",
    need="needed",
    wait="waited",
    takes="took",
    is_="was",
    would="would have made",
    of=" of the run",
)


def headline(state: PageState) -> dict[str, Any]:
    """Returns the headline with the numbers behind it, and the ranks by which the page marks rows."""
    verdict, held = state.verdict, state.verdict.straggler
    told: dict[str, Any] = {
        "kind": verdict.kind,
        "ranks": list(verdict.ranks),
        "waited": round(verdict.waited, 3),
        "title": TITLE,
        "tone": "held" if verdict.alert else "calm",
        "sentence": sentence(state),
    }
    if held is not None:
        told |= {
            "who": names(state, held.ranks),
            "cost": round(held.cost),
            "rate": round(held.rate),
            "others": round(held.others),
            "without": round(held.without),
        }
    if state.ended.startswith(FAILED):
        cause = state.ended.removeprefix(FAILED).lstrip(": ") or "nobody knows why"
        told |= {"title": "The run has failed", "tone": "failed", "sentence": cause, "ranks": []}
    elif state.ended:
        ended = f"It ended after {seconds_text(state.now)} ({state.ended})."
        told |= {"title": "The run is over", "tone": "over", "sentence": f"{ended} {told['sentence']}"}
    return told


def sentence(state: PageState) -> str:
    """Returns what the workers wait for, in words; of a run that is over, what they waited for."""
    verdict, tense = state.verdict, THEN if state.ended else NOW
    match verdict.kind:
        case "begun":
            return _begun(state)
        case "lost":
            return _lost(state, verdict)
        case "stall":
            return _stall(state, verdict)
        case "workers":
            return _workers(state, verdict, tense) + _links(state, verdict.ranks)
        case "uneven":
            return _uneven(state, verdict, tense)
        case "turns":
            return (
                f"The workers {tense.wait} for one another in turn: their steps vary, and whoever "
                f"{'came' if state.ended else 'comes'} last by chance {tense.is_} waited for. They waited "
                f"{_waited(verdict, tense)}."
            )
        case "exchange":
            return _exchange(state, verdict, tense)
        case "nobody":
            return _nobody(state, verdict, tense) + _links(state, [worker.rank for worker in slow_links(state.workers)])


def _begun(state: PageState) -> str:
    """Returns the sentence of a run of which too little is known yet."""
    if not any(worker.here and worker.latest.steps for worker in state.workers):
        if state.samples:
            return "All workers have left." if not state.ended else ""
        return "No worker has finished a step yet." if not state.ended else "No worker finished a step."
    if state.ended:
        return "It was too short to see who waits for whom."
    return f"Training has begun. After {ROUNDS_MIN} exchanges it shows who waits for whom."


def _lost(state: PageState, verdict: WaitVerdict) -> str:
    """Returns the sentence about servers that are lost and not replaced yet."""
    lost = sorted(state.waits.lost_servers)
    since = step_text(max(0.0, state.now - verdict.since))
    who = " and ".join(server_name(state, number) for number in lost).replace("and Server", "and server")
    several = len(lost) > 1
    if state.ended:
        return f"{who} {'were' if several else 'was'} lost, and not replaced."
    return (
        f"{who} {'are' if several else 'is'} lost since {since}: everybody waits until "
        f"{'others have' if several else 'another one has'} taken {'their' if several else 'its'} place."
    )


def _stall(state: PageState, verdict: WaitVerdict) -> str:
    """Returns the sentence about workers that finish no step any more."""
    none = f"{'No worker finished' if state.ended else 'No worker has finished'} a step for "
    none += step_text(max(0.0, state.now - verdict.since))
    if not verdict.stalled:
        return f"{none}: all of them {'waited' if state.ended else 'wait'}, and the trace does not name the reason."
    who = names(state, verdict.stalled)
    return f"{none}: the others {'waited' if state.ended else 'wait'} for w{who[1:]}."


def _workers(state: PageState, verdict: WaitVerdict, tense: Tense) -> str:
    """Returns the sentence about workers that hold the others up."""
    held = verdict.straggler
    assert held is not None
    several = len(held.ranks) > 1
    it = "them" if several else "it"
    others = sum(worker.here for worker in state.workers) - len(held.ranks)
    they = "they" if others > 1 else "the other one"
    return (
        f"{names(state, held.ranks)} {tense.hold if several else tense.holds} the others up: {they} waited "
        f"{_waited(verdict, tense)} for {it}. A step {tense.takes} {it} {step_text(held.own_s)}, the others at most "
        f"{step_text(held.others_own_s)}. Without {it} {they} {tense.would} {times_text(held.gain)} times the steps."
    )


def _uneven(state: PageState, verdict: WaitVerdict, tense: Tense) -> str:
    """Returns the sentence about workers of many speeds."""
    stepped = [worker for worker in state.workers if worker.latest.steps]
    slowest, fastest = max(stepped, key=lambda w: w.own_s), min(stepped, key=lambda w: w.own_s)
    rank, share = verdict.most
    return (
        f"The workers {'were' if state.ended else 'are'} uneven, and exchanges {tense.wait} for the slow ones: a step "
        f"{tense.takes} worker {slowest.rank} {step_text(slowest.own_s)}, worker {fastest.rank} "
        f"{step_text(fastest.own_s)}. They waited {_waited(verdict, tense)}, worker {rank} {percent(share)}."
    )


def _exchange(state: PageState, verdict: WaitVerdict, tense: Tense) -> str:
    """Returns the sentence about servers, links, or an exchange that hold everybody up."""
    found = verdict.bottleneck
    assert found is not None
    who, where = _which_servers(state, tense)
    text = (
        f"{who}: the workers waited {_waited(verdict, tense)}. Also for worker {found.rank}, which loses least, "
        f"{percent(found.share)} of a step of {step_text(found.step_s)} {'went' if state.ended else 'goes'} into the "
        "exchange"
    )
    if found.waiting_s >= found.bytes_s:
        return f"{text}, {step_text(found.waiting_s)} of it into waiting for {where}."
    return f"{text}, {step_text(found.bytes_s)} of it into bytes on their way. The link is slow."


def _which_servers(state: PageState, tense: Tense) -> tuple[str, str]:
    """Returns who holds everybody up, and what workers wait for, in words."""
    count, slow = len(state.shards), state.slow_servers()
    if not count:
        return f"The exchange among the workers {tense.holds} everybody up", "it"
    if count == 1:
        slow = list(state.shards)
    if len(slow) == 1:
        later = f", {step_text(state.lags.late_s[slow[0]])} later than the first," if count > 1 else ""
        return f"{server_name(state, slow[0])} or its link{later} {tense.holds} everybody up", "the server"
    if slow:
        numbers = ", ".join(map(str, slow[:-1]))
        return f"Servers {numbers} and {slow[-1]} or their links {tense.hold} everybody up", "the servers"
    return f"The {count} servers or their links {tense.hold} everybody up, none more than the others", "the servers"


def _nobody(state: PageState, verdict: WaitVerdict, tense: Tense) -> str:
    """Returns the sentence for a run in which nobody holds anybody up."""
    text = f"Nobody {tense.holds} anybody up: the workers waited {_waited(verdict, tense)}."
    stepped = [worker for worker in state.workers if worker.latest.steps]
    slowest, fastest = max(stepped, key=lambda w: w.own_s), min(stepped, key=lambda w: w.own_s)
    if slowest.own_s < 1.2 * fastest.own_s:
        return text
    return (
        f"{text} {names(state, [slowest.rank])} {tense.is_} the slowest with {step_text(slowest.own_s)} a step, "
        f"against {step_text(fastest.own_s)} of the fastest."
    )


def _waited(verdict: WaitVerdict, tense: Tense) -> str:
    """Returns `62% of the last 10 s`."""
    seconds = verdict.window_s
    window = f"{seconds:.0f} s" if 5 <= seconds < 100 else seconds_text(seconds)
    return f"{percent(verdict.waited)} of the last {window}{tense.of}"


def links_text(state: PageState) -> str:
    """Returns a sentence about all workers that have slow links; "" without any."""
    return _links(state, [worker.rank for worker in slow_links(state.workers)]).strip()


def _links(state: PageState, ranks: Sequence[int]) -> str:
    """Returns a sentence about those of these workers that have slow links; it begins with a blank. "" without any."""
    slow = [worker for worker in slow_links(state.workers) if worker.rank in ranks]
    if not slow:
        return ""
    others = [
        communicating_s(worker)
        for worker in state.workers
        if worker.here and worker not in slow and worker.latest.steps
    ]
    several = len(slow) > 1
    return (
        f" {'The links' if several else 'The link'} of w{names(state, [worker.rank for worker in slow])[1:]} "
        f"{'are' if several else 'is'} slow: {step_text(communicating_s(slow[0]))} of a step go into sending and "
        f"receiving, against {step_text(statistics.median(others))} of the others."
    )


def server_name(state: PageState, number: int) -> str:
    """Returns a server's number, with its host where there are several."""
    host = state.shards[number].host
    several = len({shard.host for shard in state.shards.values()}) > 1
    return f"Server {number} on {host}" if host and several else f"Server {number}"


def names(state: PageState, ranks: Sequence[int]) -> str:
    """Returns workers by name: `Worker 3 (cuda:0 on node-7)`, `Workers 3 and 5`, `Workers 3, 5, 8 and 4 others`."""
    if len(ranks) == 1:
        worker = state.workers[ranks[0]]
        where = " on ".join(filter(None, (worker.device, worker.host)))
        return f"Worker {ranks[0]} ({where})" if where else f"Worker {ranks[0]}"
    shown: Iterable[str] = map(str, ranks[:3])
    if len(ranks) > 3:
        return f"Workers {', '.join(shown)} and {counted(len(ranks) - 3, 'other')}"
    *head, last = shown
    return f"Workers {', '.join(head)} and {last}"


def step_text(seconds: float) -> str:
    """Returns the length of a step: `12.5 ms`, `1.2 s`."""
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else seconds_text(seconds)


def times_text(factor: float) -> str:
    """Returns how many times as much: `1.3`, `4`, `12`."""
    return f"{factor:.2g}" if factor < 10 else f"{factor:.0f}"
