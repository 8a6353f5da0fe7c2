"""What `simulate` and `advise` share: the flags of a cluster that need not exist, and what they come to.

The cluster comes from one of three sources, and flags that would contradict the source are refused:

  source            the cluster is                                    refused beside it
  --cluster FILE    the file, or a ready cluster of that name          `PLACES`, --from
  --from RUN        measured from the trace of a finished run          `PLACES`, --servers, --step-ms, --parameters
  neither           the settings, with one network card a host         nothing
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline import config as configuration
from paceline.cli.support.options import values_of
from paceline.config import Config, StopSettings
from paceline.config.group_names import as_recorded, on_cluster
from paceline.core.errors import ConfigError
from paceline.observe.runs.summary import SUMMARY, Summary, read_summary
from paceline.sim import Cluster, examples, load
from paceline.sim.cluster.model import NetworkSpec

if TYPE_CHECKING:
    from paceline.runtime.simulated.setup import SimulationSetup

PLACES = ("workers", "initial-workers", "slowdown", "latency-ms", "bandwidth-gbps")
STOP_FLAGS = ("epochs", "total-samples", "seconds", "steps")
CLUSTERS = "ready clusters: " + ", ".join(examples())


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the virtual cluster. Numbers are kept as text here; `_number` parses them, so that a wrong
    one becomes a ConfigError with the name of its flag.
    """
    group = parser.add_argument_group("virtual time")
    group.add_argument("--cluster", metavar="FILE|NAME", dest="cluster_file", help=f"a cluster file; {CLUSTERS}")
    group.add_argument(
        "--from", metavar="RUN", dest="from_run", help="folder of a run: its step times, sizes and link speeds"
    )
    group.add_argument("--parameters", metavar="N", help="number of parameters, instead of --model: nothing is trained")
    group.add_argument(
        "--latency-ms", metavar="MS", help="one-way latency between two hosts, without --cluster (default: 0.1)"
    )
    group.add_argument(
        "--bandwidth-gbps", metavar="G", help="bandwidth of each host's network card, without --cluster (default: 10)"
    )


class SimulationFlags:
    """The settings by section, and the cluster they are played on. Raises ConfigError for flags that do not agree."""

    def __init__(self, namespace: argparse.Namespace) -> None:
        """Reads the flags in an order that matters: the file of `--from` must be named in the namespace before
        `values_of` reads it, and the script's own data is taken over before a cluster is built from `values`.
        """
        self._given = namespace
        if namespace.cluster_file and namespace.from_run:
            raise ConfigError("--cluster and --from both say what the cluster is: give one of them")
        if namespace.from_run and not namespace.config:
            namespace.config = _config_of(namespace.from_run)
        self.values = values_of(namespace)
        self.script = str(self.values.get("run", {}).get("script", "")) if namespace.from_run else ""
        if self.script:
            self._take_over_script(read_summary(Path(namespace.from_run) / SUMMARY))
        self.parameters = int(_number(namespace, "parameters", 1, whole=True) or 0)
        self._cluster: Cluster | None = None
        if namespace.cluster_file:
            self._cluster = self._of_file(load(namespace.cluster_file))
        elif not namespace.from_run:
            latency_ms = _number(namespace, "latency_ms", 0)
            self.network = NetworkSpec(
                # A latency of 0 is a valid value, so None alone means the default. A bandwidth of 0 is refused by
                # its lower bound, so `or` is safe there.
                latency_s=(0.1 if latency_ms is None else latency_ms) / 1000,
                bandwidth_gbps=_number(namespace, "bandwidth_gbps", 1e-6) or 10.0,
            )
        else:
            self._refuse("--from", *PLACES, "servers", "step-ms", "parameters")

    def check(self, *, timing_only: bool) -> None:
        """Raises ConfigError where flags are about a model that is not the one which is simulated; then writes down the
        groups of a recorded run."""
        if self.cannot_train and not timing_only:
            raise ConfigError(
                f"--target-accuracy: {self._given.from_run} is a run of your own script, which is not trained here; "
                "give --model and --data (module:function), or leave it out"
            )
        if self.cannot_train and self._has("epochs"):
            raise ConfigError(
                "--epochs: nobody knows here how long one of a script is; give --total-samples or --seconds"
            )
        if timing_only and (self.parameters or self._given.from_run):
            self._refuse("--parameters" if self.parameters else "--from", "model", "width")
        if self._given.from_run:
            recorded = read_summary(Path(self._given.from_run) / SUMMARY)
            self.values = as_recorded(self.values, [worker.host for worker in recorded.workers])

    @property
    def cannot_train(self) -> bool:
        """Returns True for the run of a script, where no --model says what else to train."""
        return bool(self.script) and not self._has("model")

    def _take_over_script(self, run: Summary) -> None:
        """What its configuration does not say, since the script said it: how large a batch is, and when the run ended.

        With --model something else is trained on the cluster of that run, and all this is as for any other.
        """
        if self._has("model"):
            self.values["run"]["script"] = ""
            self.values["stop"]["until_stopped"] = False
            if not any(self._has(flag) for flag in STOP_FLAGS):
                self.values["stop"]["epochs"] = StopSettings().epochs
            return
        steps = sum(worker.steps for worker in run.workers)
        if not self._has("batch-size") and steps:
            self.values.setdefault("data", {})["batch_size"] = max(1, round(run.samples / steps))
        stop = self.values.setdefault("stop", {})
        stop["epochs"] = 0.0  # nobody knows how long one of a script is
        if not any(stop.get(key) for key in ("samples", "seconds", "steps")):
            stop["samples"] = run.samples

    def end_as_asked(self) -> None:
        """Sets `stop.epochs` to 0, which is never, where nothing is trained and `--seconds` or `--steps` ends the
        run; otherwise the default of `--epochs` would end it first. An explicit number of epochs stays.
        """
        stop = self.values.setdefault("stop", {})
        if stop.get("seconds") or stop.get("steps"):
            stop.setdefault("epochs", 0.0)

    def config(self, **run: Any) -> Config:
        """Returns the checked configuration; keyword arguments override keys of the section `run`. Raises
        ConfigError.
        """
        values = {**self.values, "run": {**self.values.get("run", {}), **run}}
        return configuration.build(on_cluster(values, self._cluster) if self._cluster else values)

    def setting(self, config: Config, *, timing_only: bool) -> SimulationSetup:
        """Returns what the simulator needs to run this configuration. Raises ConfigError.

        Torch is loaded by the imports below. A cluster, once built or measured, is kept in `_cluster`, so that
        several schemes are compared on the same step time. `model_length` is a number of parameters, or 0 where the
        model itself is built.
        """
        from paceline.runtime.simulated import cluster_from_trace
        from paceline.runtime.simulated import setup as setting

        length = self.parameters
        if self._given.from_run and self._cluster is None:
            self._cluster, length = cluster_from_trace.cluster(Path(self._given.from_run))
            # A trace tells the length of its model. Where something is trained, the length is that of the trained
            # model instead.
            length = length if timing_only else 0
        if self._cluster is None:
            if self.parameters and not config.cluster.step_ms:
                raise ConfigError("--parameters: say how long a step of that model takes, with --step-ms or --cluster")
            setting.check(config)  # before anything is measured
            setting.check_end(config, timing_only=timing_only)
            self._cluster = setting.cluster_of(config, self.network, lambda: _measured(setting.measure_step(config)))
        return setting.SimulationSetup(
            config=config, cluster=self._cluster, timing_only=timing_only, model_length=length
        )

    def _of_file(self, cluster: Cluster) -> Cluster:
        """Returns the cluster of a file, changed as `--servers 0` and `--step-ms` say, and writes its sizes into
        the settings.

        The settings must agree with the cluster, because schemes are checked against the settings. Slowdowns are
        cleared: the devices of the file already contain them. Raises ConfigError for another number of servers than
        the file has, unless it is 0.
        """
        self._refuse("--cluster", *PLACES)
        section = self.values.setdefault("cluster", {})
        if "servers" in section and section["servers"] != cluster.servers and self._has("servers"):
            if section["servers"] != 0:
                raise ConfigError(
                    f"--servers {section['servers']}: the cluster file has {cluster.servers}; 0 is for none"
                )
            cluster = cluster.without_servers()
        if self._has("step-ms") and section["step_ms"]:
            cluster = dataclasses.replace(cluster, step_s=section["step_ms"] / 1000)
        section.update(workers=cluster.workers, servers=cluster.servers, slowdown=[], step_ms=cluster.step_s * 1000)
        return cluster

    def _has(self, flag: str) -> bool:
        """Returns True for a flag of the command line; a value of a file does not count."""
        settings = [f"{setting.section}.{setting.key}" for setting in configuration.settings() if setting.flag == flag]
        return any(getattr(self._given, name, None) is not None for name in (flag.replace("-", "_"), *settings))

    def _refuse(self, for_: str, *flags: str) -> None:
        """Raises ConfigError for the first of these flags that was given on the command line; `for_` names what
        says the same.
        """
        for flag in flags:
            if self._has(flag):
                raise ConfigError(f"--{flag}: {for_} says that already; leave it out")


def _config_of(run: str) -> str:
    """Returns the path of the `config.toml` in that folder. Raises ConfigError where there is none."""
    path = Path(run) / "config.toml"
    if not path.is_file():
        raise ConfigError(f"--from {run}: no {path.name}; name the folder of a run")
    return str(path)


def _measured(seconds: float) -> float:
    """Prints the measured seconds of a step on standard error and returns them unchanged."""
    print(
        f"a step was measured on this machine: {seconds * 1000:.2f} ms; with --step-ms the run is the same everywhere",
        file=sys.stderr,
    )
    return seconds


def _number(namespace: argparse.Namespace, name: str, low: float, *, whole: bool = False) -> float | None:
    """Returns the value of a numeric flag, or None where it was not given. Raises ConfigError for text that is no
    number, for one below `low` and for one of 1e15 or more; NaN fails the same comparison.
    """
    text = getattr(namespace, name)
    if text is None:
        return None
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        # This is below every `low` that is used, so one message covers text that is no number and numbers out of
        # range.
        value = -1
    if not low <= value < 1e15:
        what = "whole number" if whole else "number"
        raise ConfigError(f"--{name.replace('_', '-')} {text}: must be a {what} of at least {low:g}")
    return value
