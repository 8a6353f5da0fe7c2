"""The main of every party but the coordinator: takes its place, does its part, and tells when it cannot."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import traceback
from collections.abc import Callable

import torch

from paceline.core.errors import CoordinatorGone, PacelineError, PeerLost, Stopped
from paceline.live import party
from paceline.live.control.session import Session
from paceline.live.protocol import control_messages as control
from paceline.live.protocol.transport import Envelope, Kind, Transport
from paceline.runtime.checkpointing.resume import open_at
from paceline.runtime.evaluator.evaluator import evaluate
from paceline.runtime.server.server import serve
from paceline.runtime.spec.devices import check_device, device_for
from paceline.runtime.spec.launcher import LOST_COORDINATOR_EXIT, ProcessEnded
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.worker.steps.step_timer import measured_update
from paceline.runtime.worker.train_loop import train


def take_part(
    spec: ProcessSpec, transport: Transport, evaluates: Callable[[Session], None] | None = None
) -> ProcessEnded:
    """Takes part until the run is over; returns how that ended. `evaluates`: the part of a loop's own evaluator.

    The coordinator hears of a failure, with a traceback where the cause is not one the user can read as it is.
    """
    spec = on_device(spec)
    try:
        check_device_of(spec)
        session = spec.session(transport)
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
    cause = f"{transport.me}: {cause}"[:2000]
    print(cause, details, sep="\n", file=sys.stderr)
    failed = control.Failed(cause=cause, details=details[-8000:], lost_another=lost_another)
    with contextlib.suppress(PacelineError):  # if the coordinator is gone, so is whoever would have read this
        transport.send(party.COORDINATOR, Envelope(Kind.CONTROL, failed))
    return cause


def main(spec: ProcessSpec) -> int:
    """The whole incarnation of a process; returns its exit code."""
    torch.set_num_threads(spec.config.cluster.threads)
    if spec.who.kind == "evaluator":
        os.nice(5)  # training comes first on a machine with few cores
    spec = on_device(spec)
    ended = take_part(spec, spec.open_transport())
    if not ended.why:
        return 0
    return LOST_COORDINATOR_EXIT if ended.lost_coordinator else 1


def on_device(spec: ProcessSpec) -> ProcessSpec:
    """Returns the place with the device that `auto` stands for on this host."""
    if spec.device != "auto":
        return spec
    return dataclasses.replace(spec, device=device_for("auto", spec.gpu, torch.cuda.device_count()))


def check_device_of(spec: ProcessSpec) -> None:
    """Raises ConfigError where this host lacks the device of the place."""
    if spec.device != "cpu":
        check_device(spec.device, torch.cuda.device_count())
