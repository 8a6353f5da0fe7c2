"""The main function of every party but the coordinator: it joins the run, does its part, and reports a failure.

A launcher calls `main` in a process of its own, or `take_part` in a thread.

    what ends the part                        what the coordinator hears             `why`, exit code
    the run is over                           nothing more                           "", 0
    Stopped (the run ended before training)   nothing                                "", 0
    CoordinatorGone                           nothing gets through                   text, 69
    CoordinatorVersion                        nothing gets through                   text, 76
    another PeerLost                          Failed(lost_another=True)              text, 1
    any other PacelineError                   Failed with the text                   text, 1
    any other exception                       Failed with the text and a traceback   text, 1

`lost_another` marks a consequence: the supervisor looks for the process whose end caused it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import traceback
from collections.abc import Callable

import torch

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.errors import CoordinatorGone, CoordinatorVersion, PacelineError, PeerLost, Stopped
from paceline.engine.accelerators import count_of
from paceline.live.control.session import Session
from paceline.live.protocol.transport import Envelope, Kind, Transport
from paceline.runtime.checkpointing.resume import open_at
from paceline.runtime.evaluator.evaluator import evaluate
from paceline.runtime.server.server import serve
from paceline.runtime.spec.core_binding import bind, part_of
from paceline.runtime.spec.devices import check_device, device_for
from paceline.runtime.spec.launcher import LOST_COORDINATOR_EXIT, OTHER_VERSION_EXIT, ProcessEnded
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.worker.steps.step_timer import measured_update
from paceline.runtime.worker.train_loop import train


def take_part(
    spec: ProcessSpec, transport: Transport, evaluates: Callable[[Session], None] | None = None
) -> ProcessEnded:
    """Takes part until the run is over; returns how that ended. `evaluates`: the part of a loop's own evaluator.

    It raises nothing. The coordinator hears of a failure, with a traceback where the user could not act on the text
    alone.
    """
    spec = on_device(spec)
    try:
        check_device_of(spec)
        session = spec.session(transport)
        # Servers measure their speed before Hello, since the coordinator sizes their shards by it. One server needs no
        # measure.
        speeds = measured_update() if spec.who.kind == "server" and spec.servers > 1 else (0.0, 0.0)
        session.hello(spec.coordinator, spec.device, speeds=speeds, incarnation=spec.incarnation)
        match spec.who.kind:
            case "worker":
                train(spec.config, spec, session)
            case "server":
                serve(spec, session, open_at(spec.config, spec.resume))
            case _ if evaluates:
                evaluates(session)
            case _:
                evaluate(spec.config, spec, session)
    except Stopped:
        why = ""
    except CoordinatorVersion as error:
        return ProcessEnded(
            who=spec.who, why=_tell(transport, str(error).removeprefix(f"{spec.party} "), ""), other_version=True
        )
    except PeerLost as error:
        why = _tell(transport, f"lost somebody: {error}", "", lost_another=True)
        return ProcessEnded(who=spec.who, why=why, lost_coordinator=isinstance(error, CoordinatorGone))
    except PacelineError as error:
        why = _tell(transport, str(error), "")
    except Exception as error:
        why = _tell(transport, f"{type(error).__name__}: {error}", traceback.format_exc())
    else:
        why = ""
    finally:
        transport.close()
    return ProcessEnded(who=spec.who, why=why)


def _tell(transport: Transport, cause: str, details: str, *, lost_another: bool = False) -> str:
    """Reports a failure on stderr and to the coordinator; returns its text, which begins with the party's name.

    Both texts are cut to fit a control message: the beginning of the cause, the end of the traceback.
    """
    cause = f"{transport.me}: {cause}"[:2000]
    print(cause, details, sep="\n", file=sys.stderr)
    failed = control.Failed(cause=cause, details=details[-8000:], lost_another=lost_another)
    with contextlib.suppress(PacelineError):  # if the coordinator is gone, so is whoever would have read this
        transport.send(party.COORDINATOR, Envelope(Kind.CONTROL, failed))
    return cause


def main(spec: ProcessSpec) -> int:
    """Runs one process from its start to its end; returns its exit code."""
    bind(part_of(spec))  # before torch makes threads, which inherit it
    torch.set_num_threads(spec.config.cluster.threads)
    if spec.who.kind == "evaluator":
        os.nice(5)  # training comes first on a machine with few cores
    spec = on_device(spec)
    ended = take_part(spec, spec.open_transport())
    if not ended.why:
        return 0
    if ended.other_version:
        return OTHER_VERSION_EXIT
    return LOST_COORDINATOR_EXIT if ended.lost_coordinator else 1


def on_device(spec: ProcessSpec) -> ProcessSpec:
    """Returns the spec with the device that `auto` stands for on this host."""
    if spec.device != "auto":
        return spec
    return dataclasses.replace(spec, device=device_for("auto", spec.gpu, count_of("cuda")))


def check_device_of(spec: ProcessSpec) -> None:
    """Raises ConfigError where this host lacks the device of the spec."""
    if spec.device != "cpu":
        check_device(spec.device, count_of(spec.device.partition(":")[0]))
