"""The main of every party but the coordinator: takes its seat, does its part, and tells when it cannot."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import traceback

import torch

from paceline.config import Config
from paceline.core.errors import PacelineError, PeerLost, Stopped
from paceline.live import party
from paceline.live.protocol import control_messages as control
from paceline.live.protocol.transport import Envelope, Kind, Transport
from paceline.runtime.checkpointing.resume import open_at
from paceline.runtime.evaluator.evaluator import evaluate
from paceline.runtime.server.server import serve
from paceline.runtime.spec.devices import check_device, device_for
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.worker.steps.step_timer import measured_update
from paceline.runtime.worker.train_loop import train


def take_part(config: Config, seat: ProcessSpec, transport: Transport) -> str:
    """Until the run is over; returns why it failed, or nothing.

    The coordinator hears of a failure, with a traceback where the cause is not one the user can read as it is.
    """
    seat = on_device(seat)
    try:
        check_device_of(seat)
        session = seat.session(transport)
        speeds = measured_update() if seat.who.kind == "server" and seat.servers > 1 else (0.0, 0.0)
        session.hello(seat.coordinator, seat.device, speeds=speeds, incarnation=seat.incarnation)
        match seat.who.kind:
            case "worker":
                train(config, seat, session)
            case "server":
                serve(seat, session, open_at(config, seat.resume))
            case _:
                evaluate(config, seat, session)
    except Stopped:
        return ""
    except PeerLost as error:
        return _tell(transport, f"lost somebody: {error}", "")
    except PacelineError as error:
        return _tell(transport, str(error), "")
    except Exception as error:
        return _tell(transport, f"{type(error).__name__}: {error}", traceback.format_exc())
    finally:
        transport.close()
    return ""


def _tell(transport: Transport, cause: str, details: str) -> str:
    cause = f"{transport.me}: {cause}"[:2000]
    print(cause, details, sep="\n", file=sys.stderr)
    with contextlib.suppress(PacelineError):  # if the coordinator is gone, so is whoever would have read this
        transport.send(party.COORDINATOR, Envelope(Kind.CONTROL, control.Failed(cause=cause, details=details[-8000:])))
    return cause


def main(config: Config, seat: ProcessSpec) -> int:
    """The whole life of a process; returns its exit code."""
    torch.set_num_threads(config.cluster.threads)
    if seat.who.kind == "evaluator":
        os.nice(5)  # training comes first on a machine with few cores
    seat = on_device(seat)
    return 1 if take_part(config, seat, seat.transport()) else 0


def on_device(seat: ProcessSpec) -> ProcessSpec:
    """Returns the seat with the device that `auto` stands for on this host."""
    if seat.device != "auto":
        return seat
    return dataclasses.replace(seat, device=device_for("auto", seat.gpu, torch.cuda.device_count()))


def check_device_of(seat: ProcessSpec) -> None:
    """Raises ConfigError where this host lacks the device of the seat."""
    if seat.device != "cpu":
        check_device(seat.device, torch.cuda.device_count())
