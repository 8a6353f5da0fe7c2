"""A run, as it goes on, in Weights & Biases or MLflow: hooks, to be copied next to your script and changed.

    paceline train --scheme esync --hook hooks:WandB        (pip install wandb)
    paceline train --scheme esync --hook hooks:MLflow       (pip install mlflow)

A hook hears of every record of the trace in a thread of its own; the run waits for none. These two send accuracy and
loss, where each worker's time went since the last evaluation, and who came and went.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from paceline.core.trace import Evaluated, MemberChange, Record, Span


class Numbers:
    """Gathers what lies between two evaluations; a class that derives from it says where numbers go."""

    def __init__(self, out: str) -> None:
        """`out`: the run's folder; config.toml is in it as soon as the first record is."""
        self._config = Path(out) / "config.toml"
        self._seconds: dict[str, float] = defaultdict(float)

    def __call__(self, record: Record) -> None:
        match record:
            case Span():
                self._seconds[f"worker {record.rank}/{record.activity}"] += record.seconds
            case Evaluated():
                self.log({"accuracy": record.accuracy, "loss": record.loss, "seconds": record.at}, record.samples)
                self.log(dict(self._seconds), record.samples)
                self._seconds.clear()
            case MemberChange(event="lost"):
                self.tell(f"{record.party} was lost: {record.reason}")

    def log(self, numbers: dict[str, float], samples: int) -> None:
        raise NotImplementedError

    def tell(self, line: str) -> None:
        raise NotImplementedError


class WandB(Numbers):
    def __init__(self, out: str) -> None:
        super().__init__(out)
        import wandb

        self._run: Any = wandb.init(project="paceline", name=Path(out).name)

    def log(self, numbers: dict[str, float], samples: int) -> None:
        self._run.log({**numbers, "samples": samples})

    def tell(self, line: str) -> None:
        self._run.alert(title="paceline", text=line)

    def close(self) -> None:
        self._run.save(str(self._config), base_path=str(self._config.parent), policy="now")
        self._run.finish()


class MLflow(Numbers):
    """By the client, with the run's id: what `mlflow.start_run` begins is known on one thread only."""

    def __init__(self, out: str) -> None:
        super().__init__(out)
        import mlflow

        self._client: Any = mlflow.MlflowClient()
        experiment = mlflow.set_experiment("paceline").experiment_id
        self._id = self._client.create_run(experiment, run_name=Path(out).name).info.run_id

    def log(self, numbers: dict[str, float], samples: int) -> None:
        for name, number in numbers.items():
            self._client.log_metric(self._id, name.replace(" ", "_"), number, step=samples)

    def tell(self, line: str) -> None:
        self._client.set_tag(self._id, "last event", line)

    def close(self) -> None:
        self._client.log_artifact(self._id, str(self._config))
        self._client.set_terminated(self._id)
