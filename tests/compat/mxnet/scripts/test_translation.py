"""Command lines of MXNet and MXNet-G, in Paceline's words."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from paceline.cli.commands import launch, train
from paceline.cli.support.options import config_of
from paceline.compat.mxnet.scripts.command_line import taken_apart
from paceline.compat.mxnet.scripts.translation import IDX, translated
from paceline.core.errors import ConfigError

DMLC = {"DMLC_ROLE": "worker"}


def words_of(line: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    return shlex.join(translated(taken_apart(line.split()), environment or {}, folder).words)


def test_a_script_alone_is_one_worker_with_the_scripts_defaults(tmp_path: Path) -> None:
    assert words_of("python train_mnist.py", tmp_path) == (
        "train --scheme bsp --workers 1 --servers 1 --device cpu --batch-size 64 --data mnist --optimizer sgd "
        "--lr 0.05 --weight-decay 0.0001 --momentum 0.9 --model mlp --schedule step --schedule-at 10 "
        "--schedule-factor 0.1 --epochs 20"
    )


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("train_mnist.py --kv-store device --gpus 0,2", "--scheme bsp --workers 2 --servers 0 --device cuda:0,cuda:2"),
        ("train_mnist.py --gpus 0,2 --batch-size 64", "--batch-size 32"),
        ("launch.py -n 2 -s 3 --launcher local train_mnist.py --kv-store dist_sync", "--workers 2 --servers 3"),
        ("launch.py -n 2 --launcher local train_mnist.py --kv-store dist_async", "--scheme asp"),
        ("train_mnist.py --kv-store dist_async --optimizer dcasgd", "--scheme dcasgd"),
        ("train_mnist.py --kv-store dist_ssync --staleness 4", "--ssp.staleness 4"),
        ("train_mnist.py --kv-store dist_gsync", "--scheme gsp"),
        ("train_mnist.py --gc-type 2bit --gc-threshold 0.64 --batch-size 32", "--codec '2bit(threshold=0.02)'"),
        ("train_mnist.py --lr-step-epochs 5,8 --lr-factor 0.5", "--schedule-at 5,8 --schedule-factor 0.5"),
        ("train_mnist.py --lr-step-epochs pow2", "--schedule poly --schedule-power 2"),
        ("train_mnist.py --lr-factor-epoch 1 --lr-factor 0.94", "--schedule-every 1.0 --schedule-factor 0.94"),
        ("train_mnist.py --optimizer nag", "--optimizer sgd --lr 0.05 --weight-decay 0.0001 --momentum 0.9 --nesterov"),
        ("train_mnist.py --optimizer adam --lr 0.001", "--optimizer adam --lr 0.001 --weight-decay 0.0001 --model"),
        ("train_mnist.py --optimizer lbsgd --warmup-epochs 3", "--momentum 0.9 --warmup 3"),
        ("train_mnist.py --optimizer lbsgd --warmup-strategy lars", "--optimizer lars"),
        ("train_mnist.py --model-prefix runs/a --load-epoch 3", "--out runs/a --resume auto"),
        ("train_mnist.py --dtype float16 --gpus 0", "--precision fp16"),
        ("train_imagenet.py --benchmark 1", "--data synthetic"),
        ("--seed 3 --slowdown 1,3 train_mnist.py", "--epochs 20 --seed 3 --slowdown 1,3"),
    ],
)
def test_flags_are_put_into_our_words(line: str, parts: str, tmp_path: Path) -> None:
    assert parts in words_of(line, tmp_path)


def test_every_translation_is_a_command_line_that_train_takes(tmp_path: Path) -> None:
    for line in ("train_mnist.py --gc-type 2bit", "train_mnist.py --kv-store dist_gsync --lr-step-epochs 5,8"):
        _, *words = translated(taken_apart(line.split()), {}, tmp_path).words
        assert config_of(train.parse(words)).schedule.at


def test_files_of_mxnet_are_found_where_its_scripts_look_for_them(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in IDX:
        (tmp_path / "data" / f"{name}.gz").touch()
    for name in ("groups", "data_sharding"):
        (tmp_path / name).touch()
    line = words_of("train_mnist.py --kv-store dist_gsync --data-allocator 1", tmp_path)
    for words in (
        f"--data-dir {tmp_path}/data",
        f"--gsp.groups file:{tmp_path}/groups",
        f"--partition file:{tmp_path}/data_sharding",
    ):
        assert words in line


def test_a_launcher_over_other_machines_becomes_ours(tmp_path: Path) -> None:
    line = "launch.py -n 4 -s 2 -H hosts --sync-dst-dir /tmp/a --env-worker OMP_NUM_THREADS:3 --env A -i ib0"
    words = words_of(f"{line} train_mnist.py --kv-store dist_sync", tmp_path)
    assert words.startswith(
        "launch -n 4 -s 2 -H hosts --launcher ssh -i ib0 --sync-dir /tmp/a --env worker:OMP_NUM_THREADS=3 --env A "
        "paceline train --scheme bsp"
    )
    (tmp_path / "hosts").write_text("10.0.0.1\n")
    options = launch._parser().parse_all(shlex.split(words)[1:])
    assert (options.workers, options.env, options.command[:2]) == (
        "4",
        ["worker:OMP_NUM_THREADS=3", "A"],
        ["paceline", "train"],
    )


def test_under_mxnets_own_launcher_its_variables_say_how_many_there_are(tmp_path: Path) -> None:
    words = words_of("train_mnist.py --kv-store dist_sync", tmp_path, DMLC)
    assert "--workers" not in words
    assert "--servers" not in words


def test_what_changes_nothing_is_named_with_what_there_is_instead() -> None:
    line = taken_apart(["train_mnist.py", "--disp-batches", "10", "--top-k", "5", "--lr", "0.1"])
    assert translated(line, {}).without == ("--disp-batches (the display goes by time)", "--top-k (accuracy is top-1)")


@pytest.mark.parametrize(
    ("line", "environment", "told"),
    [
        ("train_mnist.py --test-io 1", {}, "--test-io is not rebuilt"),
        ("train_mnist.py --network lenet --add_stn", {}, "--add_stn is not rebuilt: give the network as --model"),
        ("train_mnist.py --kv-store byteps", {}, "--kv-store byteps is not rebuilt: there are local, device"),
        ("launch.py -n 2 --launcher local train_mnist.py", {}, "--kv-store device under launch.py would train a model"),
        ("train_mnist.py", DMLC, "would train a model for each worker: give dist_sync"),
        ("train_mnist.py --kv-store dist_sync --gpus 0,1", DMLC, "a worker has one device here"),
        ("train_mnist.py --gpus zero", {}, "--gpus zero: must be numbers of GPUs"),
        ("train_mnist.py --gpus 0,1 --batch-size 5", {}, "must be a positive multiple of the 2 devices"),
        ("train_mnist.py --optimizer dcasgd", {}, "--optimizer dcasgd is for --kv-store dist_async"),
        ("train_mnist.py --optimizer ftrl", {}, "--optimizer ftrl: there are sgd, nag"),
        ("train_mnist.py --optimizer lbsgd --warmup-strategy sqrt", {}, "--warmup-strategy sqrt is not rebuilt"),
        ("train_mnist.py --gc-type 1bit", {}, "--gc-type 1bit: there are none and 2bit"),
        ("train_mnist.py --data-allocator 1", {}, "reads the file data_sharding of this folder"),
        ("train_mnist.py --load-epoch 3", {}, "--load-epoch needs --model-prefix"),
        ("train_mnist.py --dtype float64", {}, "--dtype float64: there are float32 and float16"),
        ("launch.py -n 2 train_mnist.py --kv-store dist_sync", {}, "launch.py takes ssh, which needs -H FILE"),
        ("launch.py -n 2 --p3 --launcher local train_mnist.py --kv-store dist_sync", {}, "--p3 is not rebuilt"),
    ],
)
def test_what_is_not_rebuilt_is_refused_in_one_line(
    line: str, environment: dict[str, str], told: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        words_of(line, tmp_path, environment)
    assert "\n" not in str(error.value)
