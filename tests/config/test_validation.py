"""Settings that contradict one another are refused with the way out."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.config import build
from tests.config.settings import refusal

Values = dict[str, dict[str, Any]]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cluster": {"workers": 3, "slowdown": [1, 2]}}, "--slowdown names 2 workers, --workers says 3"),
        ({"cluster": {"workers": 3, "slowdown": [2]}}, "--slowdown names 1 workers, --workers says 3"),
        ({"cluster": {"workers": 3, "device": "cpu,cpu"}}, "--device names 2 workers, --workers says 3"),
        ({"cluster": {"workers": 3, "batch_limits": [96, 32]}}, "--batch-limits names 2 workers, --workers says 3"),
        (
            {"run": {"scheme": "lbbsp"}, "lbbsp": {"global_batch": 400}, "cluster": {"batch_limits": [96]}},
            "batches are 96, 96, 96, 96 cannot take 400 samples a round: lower --lbbsp.global-batch to 384",
        ),
        (
            {"run": {"scheme": "sgp"}, "cluster": {"workers": 2, "batch_limits": [96, 32]}},
            "--batch-limits 96,32: sgp takes the batches of all workers to be equal",
        ),
        ({"cluster": {"ranks": "2"}}, "--ranks is for a script that calls paceline.join"),
        ({"cluster": {"workers": 3, "ranks": "2,1"}}, "--ranks names 2 workers, --workers says 3"),
        (
            {"run": {"script": "x"}, "stop": {"until_stopped": True}, "cluster": {"device": "cuda:0+1"}},
            "--device cuda:0+1: 2 GPUs, and worker 0 has 1 processes; give --ranks 2",
        ),
        ({"stop": {"epochs": 0}}, "nothing would end the run"),
        ({"optimizer": {"nesterov": True, "momentum": 0.0}}, "--nesterov needs --momentum"),
        ({"optimizer": {"name": "adam", "nesterov": True}}, "beta1"),
        ({"model": {"name": "resnet18"}, "cluster": {"workers": 2, "slowdown": [1, 2]}}, "--step-ms"),
        ({"optimizer": {"name": "adam", "beta1": 1.0}}, "--beta1 and --beta2 must be below 1"),
        ({"schedule": {"name": "cosine"}, "stop": {"epochs": 0, "steps": 5}}, "--schedule cosine needs --epochs"),
        ({"schedule": {"name": "poly"}, "stop": {"epochs": 0, "steps": 5}}, "--schedule poly needs --epochs"),
        ({"schedule": {"at": [3.0]}}, "--schedule-at is for --schedule step, not constant"),
        ({"schedule": {"name": "cosine", "warmup": 9}, "stop": {"epochs": 3}}, "--warmup"),
        ({"data": {"directory": "/no/such/folder"}}, "no such folder"),
        ({"cluster": {"ack": "replica"}}, "--ack replica needs another server to keep the copies, --servers says 1"),
        ({"data": {"mean_file": "mean.npy"}}, "--mean-file is for --data cifar10"),
        ({"data": {"name": "lmdb", "mean_file": "/no/such.npy"}}, "--mean-file /no/such.npy: no such file"),
        ({"data": {"name": "my.py:load", "resize": 8}}, "--resize is for data known by name"),
        ({"data": {"name": "my.py:load", "augment": "cifar"}}, "--augment is for data known by name"),
        ({"data": {"name": "lmdb", "directory": "s3://b/c"}}, "--data lmdb reads a folder of this machine"),
        ({"data": {"name": "text"}, "model": {"name": "mlp"}}, "--model mlp takes none: give --model gpt"),
        (
            {"data": {"name": "text"}, "model": {"name": "gpt"}, "stop": {"target_accuracy": 0.9}},
            "--data text has a loss and no accuracy: give --target-loss",
        ),
        ({"data": {"file": "book.txt"}}, "--data-file is for --data text"),
        (
            {"model": {"name": "gpt"}, "data": {"name": "digits"}},
            "--model gpt predicts the next token of a text: give --data text",
        ),
        ({"data": {"partition": "fractions:1,2,3"}}, "--partition names 3 fractions, --workers says 4"),
        ({"data": {"partition": "file:/no/such/file"}}, "cannot read the data_sharding file /no/such/file"),
        ({"run": {"scheme": "gsp"}, "gsp": {"groups": "0,1;2"}}, "each of the workers 0..3 once"),
        ({"run": {"scheme": "gsp"}, "gsp": {"groups": "0,1;2,4"}}, "each of the workers 0..3 once"),
        ({"run": {"scheme": "asp"}, "cluster": {"servers": 0}}, "asp keeps its model on servers"),
        ({"cluster": {"servers": 0, "allreduce": "servers"}}, "--allreduce servers needs --servers"),
        ({"cluster": {"allreduce": "nccl", "device": "cpu"}}, "needs a GPU"),
    ],
)
def test_settings_that_contradict_one_another_are_refused(values: Values, words: str) -> None:
    message = refusal(lambda: build(values))
    assert words in message, message


@pytest.mark.parametrize("scheme", ["bsp", "esync"])
def test_schemes_of_equals_need_no_server(scheme: str) -> None:
    assert build({"run": {"scheme": scheme}, "cluster": {"servers": 0}}).cluster.servers == 0


def test_any_one_end_is_enough() -> None:
    for end in ({"seconds": 1.0}, {"steps": 1}, {"target_accuracy": 0.5}):
        assert build({"stop": {"epochs": 0, **end}})
