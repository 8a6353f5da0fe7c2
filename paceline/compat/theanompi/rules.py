"""The rules of Theano-MPI as its scripts call them: `init` starts the workers, `wait` returns when they are done."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.compat.theanompi.session import TheanoMpiSession, launched
from paceline.core.errors import ConfigError, PacelineError
from paceline.core.files.helper_command import helper_command


class TrainingRule:
    """Starts one process for each device by `paceline launch`; `name` is the rule's."""

    name = ""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def session(
        self, devices: Sequence[str], modelfile: str, modelclass: str, settings: dict[str, Any]
    ) -> TheanoMpiSession:
        """Returns the session that `init` starts."""
        return TheanoMpiSession(
            rule=self.name,
            devices=tuple(devices),
            modelfile=modelfile,
            modelclass=modelclass,
            settings={name: str(value) for name, value in settings.items()},
        )

    def init(
        self, devices: Sequence[str], modelfile: str, modelclass: str, *, launch: Sequence[str] = (), **settings: Any
    ) -> None:
        """Starts the workers.

        devices: `cuda0`, `cpu`, or `node0:cuda0,cuda1`. modelfile: a dotted module, or a `.py` file. launch: options
        of `paceline launch`, such as ["--out", "runs/a"]. settings: of the model (`torch_model.py`), such as
        data="cifar10". Raises ConfigError, and for a second call before `wait`.
        """
        if self._process is not None:
            raise ConfigError(f"{self.name}.init was called already: call wait() first")
        words, lines = launched(self.session(devices, modelfile, modelclass, settings), Path("runs"))
        for line in lines:
            print(f"paceline: {line}", file=sys.stderr)
        self._process = subprocess.Popen(helper_command("paceline", "launch", *launch, *words))

    def wait(self) -> None:
        """Returns when all workers are done. Raises PacelineError if the run failed."""
        if self._process is None:
            raise ConfigError(f"{self.name}.wait: call init(devices=..., modelfile=..., modelclass=...) first")
        code, self._process = self._process.wait(), None
        if code:
            raise PacelineError(f"{self.name}: the run ended with exit code {code}")


class BulkRule(TrainingRule):
    """Bulk synchronous: every step ends with an exchange.

    sync_type: `cdd` averages updates, `avg` weights. exch_strategy: see `exchange.py`. Set them on the class, as in
    Theano-MPI, or on the object.
    """

    name = "BSP"
    sync_type = "cdd"
    exch_strategy = "nccl32"

    def session(
        self, devices: Sequence[str], modelfile: str, modelclass: str, settings: dict[str, Any]
    ) -> TheanoMpiSession:
        plain = super().session(devices, modelfile, modelclass, settings)
        return dataclasses.replace(plain, sync_type=self.sync_type, exch_strategy=self.exch_strategy)


class ElasticRule(TrainingRule):
    """Elastic averaging; the first device is the server's, which needs none here."""

    name = "EASGD"


class GossipRule(TrainingRule):
    """Gossip: each worker now and then sends its model to another one."""

    name = "GOSGD"
