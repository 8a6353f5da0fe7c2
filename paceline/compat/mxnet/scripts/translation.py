"""Translates a command line of MXNet or MXNet-G into one of `paceline train` or `paceline launch`.

    MXNet                                          here
    --kv-store local, device, nccl, dist_sync      --scheme bsp: the mean over all workers' samples
    --kv-store dist_async                          --scheme asp; with --optimizer dcasgd --scheme dcasgd
    --kv-store dist_ssync --staleness s            --scheme ssp --ssp.staleness s
    --kv-store dist_gsync, file `groups`           --scheme gsp --gsp.groups file:groups
    a worker with several --gpus                   a worker for each, with its part of the batch

What is not rebuilt is refused, or, where the run is the same without it, named in `without`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.compat.mxnet.scripts.command_line import CommandLine
from paceline.compat.mxnet.scripts.flags import flags_of, launcher_flags
from paceline.compat.mxnet.scripts.networks import model_of
from paceline.core.errors import ConfigError

WITHOUT = {
    "disp_batches": "the display goes by time",
    "monitor": "--hook sees each record",
    "top_k": "accuracy is top-1",
    "loss": "the loss is in the trace",
    "initializer": "networks have their papers' initial weights",
    "save_period": "--checkpoint-every, in seconds",
    "data_nthreads": "samples are in memory",
    "macrobatch_size": "the batch is --batch-size of each worker",
    "profile_worker_suffix": "paceline export RUN --to chrome",
    "profile_server_suffix": "paceline export RUN --to chrome",
    "num_examples": "an epoch is a pass over the data that is there",
    "log_file": "paceline export RUN --to mxnet",
    "log_dir": "--out",
    "hostname": "workers are told apart by rank",
    "dataset": "trace.jsonl names the data",
    "savemodel": "the model is always saved",
    "rgb_mean": "pixels are normalised by the training set",
    "rgb_std": "pixels are normalised by the training set",
    "fill_value": "--augment cifar pads with zeros",
    "brightness": "colours are not varied",
    "contrast": "colours are not varied",
    "saturation": "colours are not varied",
    "pca_noise": "colours are not varied",
    "max_random_h": "colours are not varied",
    "max_random_s": "colours are not varied",
    "max_random_l": "colours are not varied",
    "max_random_rotate_angle": "pictures are not rotated",
    "max_random_shear_ratio": "pictures are not sheared",
}
"""Flags that change nothing here, and what there is instead."""
OPTIMIZERS = {
    "sgd": "sgd",
    "nag": "sgd",
    "dcasgd": "sgd",
    "lbsgd": "sgd",
    "adam": "adam",
    "lars": "lars",
    "lamb": "lamb",
}
SCHEMES = {
    "local": "bsp",
    "device": "bsp",
    "nccl": "bsp",
    "local_update_cpu": "bsp",
    "local_allreduce_cpu": "bsp",
    "local_allreduce_device": "bsp",
    "horovod": "bsp",
    "dist_sync": "bsp",
    "dist": "bsp",
    "dist_sync_device": "bsp",
    "dist_device_sync": "bsp",
    "dist_async": "asp",
    "dist_async_device": "asp",
    "dist_ssync": "ssp",
    "dist_gsync": "gsp",
}
IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """words: what `paceline` is called with. without: flags that change nothing here, each with its substitute."""

    words: tuple[str, ...]
    without: tuple[str, ...]


def translated(line: CommandLine, environment: Mapping[str, str], folder: Path = Path()) -> Translation:
    """Returns the command line of ours. `folder` is where the script would run: it may hold data and MXNet-G's files.

    Raises ConfigError for what is not rebuilt.
    """
    flags, given = flags_of(line.script, line.flags)
    gpus = [gpu for gpu in (flags.gpus or "").split(",") if gpu]
    _check(flags, line, environment, gpus)
    launcher = launcher_flags(line.launcher) if line.launcher is not None else None
    workers = (launcher.num_workers if launcher else 1) * max(1, len(gpus))
    servers = launcher.num_servers if launcher else int(workers == 1)
    words = ["train", "--scheme", _scheme(flags)]
    if "DMLC_ROLE" not in environment:
        words += ["--workers", str(workers), "--servers", str(servers)]
    words += _devices(gpus, launcher)
    words += ["--batch-size", str(_batch(flags.batch_size, gpus))]
    words += [*_scheme_parameters(flags, folder), *_data(line.script, flags, folder), *_optimizer(flags)]
    words += ["--model", model_of(flags.network, flags.num_layers, flags.num_classes)]
    words += [*_schedule(flags), "--epochs", str(flags.num_epochs), *_codec(flags, gpus), *_files(flags), *line.ours]
    if launcher is not None:
        words = [*_launched(launcher, workers), *words]
    without = (f"--{name.replace('_', '-')} ({WITHOUT[name]})" for name in WITHOUT if name in given)
    return Translation(words=tuple(words), without=tuple(without))


def _check(flags: argparse.Namespace, line: CommandLine, environment: Mapping[str, str], gpus: Sequence[str]) -> None:
    """Raises ConfigError for what is not rebuilt, and for what MXNet would do against the user's intention."""
    if flags.test_io:
        raise ConfigError("--test-io is not rebuilt: samples are in memory, so nothing is read while a run trains")
    if flags.add_stn:
        raise ConfigError("--add_stn is not rebuilt: give the network as --model my.py:Net of `paceline train`")
    if flags.kv_store not in SCHEMES:
        raise ConfigError(f"--kv-store {flags.kv_store} is not rebuilt: there are {', '.join(SCHEMES)}")
    several = line.launcher is not None or "DMLC_ROLE" in environment
    if several and "dist" not in flags.kv_store and flags.kv_store != "horovod":
        raise ConfigError(
            f"--kv-store {flags.kv_store} under launch.py would train a model for each worker: give dist_sync, "
            "dist_async, dist_ssync or dist_gsync"
        )
    if "DMLC_ROLE" in environment and len(gpus) > 1:
        raise ConfigError(f"--gpus {flags.gpus}: a worker has one device here: start as many workers as there are GPUs")
    if not all(gpu.isdecimal() for gpu in gpus):
        raise ConfigError(f"--gpus {flags.gpus}: must be numbers of GPUs, such as 0,2")


# ---- who trains ------------------------------------------------------------------------------------------
def _scheme(flags: argparse.Namespace) -> str:
    """Returns the scheme of a type of store. Raises ConfigError for an optimizer that does not go with it."""
    scheme = SCHEMES[flags.kv_store]
    if flags.optimizer == "dcasgd":
        if scheme != "asp":
            raise ConfigError(f"--optimizer dcasgd is for --kv-store dist_async, not {flags.kv_store}")
        return "dcasgd"
    return scheme


def _scheme_parameters(flags: argparse.Namespace, folder: Path) -> Iterable[str]:
    scheme = SCHEMES[flags.kv_store]
    if scheme == "ssp":
        yield from ("--ssp.staleness", str(flags.staleness))
    if scheme == "gsp" and (folder / "groups").is_file():
        yield from ("--gsp.groups", f"file:{folder / 'groups'}")
    if flags.data_allocator:
        if not (folder / "data_sharding").is_file():
            raise ConfigError("--data-allocator 1 reads the file data_sharding of this folder, which is not there")
        yield from ("--partition", f"file:{folder / 'data_sharding'}")


def _devices(gpus: Sequence[str], launcher: argparse.Namespace | None) -> list[str]:
    """Returns the devices of the workers of one machine; on several each takes those of its host."""
    if not gpus:
        return ["--device", "cpu"]
    several_hosts = launcher is not None and launcher.launcher != "local"
    count = launcher.num_workers if launcher is not None else 1
    return [] if several_hosts else ["--device", ",".join([f"cuda:{gpu}" for gpu in gpus] * count)]


def _batch(size: int, gpus: Sequence[str]) -> int:
    """Returns the samples of each worker: MXNet's batch is that of a machine, and is cut over its GPUs."""
    if size < 1 or size % max(1, len(gpus)):
        raise ConfigError(f"--batch-size {size}: must be a positive multiple of the {max(1, len(gpus))} devices")
    return size // max(1, len(gpus))


def _launched(launcher: argparse.Namespace, workers: int) -> Iterable[str]:
    """Yields the words before `train`, where `paceline launch` has to start the run, with so many workers in all."""
    if launcher.p3:
        raise ConfigError("launch.py --p3 is not rebuilt: gradients leave while backward runs, with --overlap on")
    env = [("server:", one) for one in launcher.env_server] + [("worker:", one) for one in launcher.env_worker]
    env += [("", one) for one in launcher.env]
    if launcher.launcher == "local" and not env:
        return
    if launcher.launcher == "ssh" and not launcher.hostfile:
        raise ConfigError("launch.py takes ssh, which needs -H FILE; on this machine alone give --launcher local")
    yield from ("launch", "-n", str(workers), "-s", str(launcher.num_servers))
    if launcher.hostfile:
        yield from ("-H", launcher.hostfile)
    yield from ("--launcher", launcher.launcher)
    if launcher.dmlc_interface:
        yield from ("-i", launcher.dmlc_interface)
    if launcher.sync_dst_dir:
        yield from ("--sync-dir", launcher.sync_dst_dir)
    for role, one in env:
        name, colon, value = one.partition(":")
        yield from ("--env", f"{role}{name}={value}" if colon else f"{role}{name}")
    yield "paceline"


# ---- what is trained -------------------------------------------------------------------------------------
def _data(script: str, flags: argparse.Namespace, folder: Path) -> list[str]:
    """Returns the data set. MNIST's files are looked for in `data`, where MXNet's script keeps them."""
    if flags.benchmark:
        return ["--data", "synthetic"]
    if script == "train_mnist.py":
        at = Path(flags.data_dir) if flags.data_dir else folder / "data"
        there = all((at / name).is_file() or (at / f"{name}.gz").is_file() for name in IDX)
        return ["--data", "mnist", *(["--data-dir", str(at)] if there or flags.data_dir else [])]
    train, val = (Path(given or "") for given in (flags.data_train, flags.data_val))
    if not flags.data_train or not flags.data_val or train.parent != val.parent:
        raise ConfigError(f"{script}: --data-train and --data-val must be two .rec files in one folder")
    return ["--data", "recordio", "--data-dir", str(folder / train.parent), *_pictures(flags)]


def _pictures(flags: argparse.Namespace) -> list[str]:
    """Returns the size of pictures and how those to train on are varied. Crops are 7/8 of --resize."""
    side = int(flags.image_shape.split(",")[-1])
    small = side < 64
    if flags.random_resized_crop or flags.use_imagenet_data_augmentation:
        return ["--resize", str(side * 8 // 7), "--augment", "imagenet"]
    if flags.random_crop and flags.random_mirror:
        return ["--augment", "cifar"] if small else ["--resize", str(side * 8 // 7), "--augment", "alexnet"]
    if flags.random_crop or flags.random_mirror:
        raise ConfigError("--random-crop and --random-mirror are there together only, or neither")
    return [] if small else ["--resize", str(side)]


def _optimizer(flags: argparse.Namespace) -> Iterable[str]:
    """Yields the optimizer. Raises ConfigError for one that only a loop of one's own can have."""
    name = flags.optimizer
    if name not in OPTIMIZERS:
        raise ConfigError(
            f"--optimizer {name}: there are {', '.join(OPTIMIZERS)}; paceline.join takes any other of torch"
        )
    if name == "lbsgd" and flags.warmup_strategy == "lars":
        yield from ("--optimizer", "lars")
    elif name == "lbsgd" and flags.warmup_strategy != "linear":
        raise ConfigError(f"--warmup-strategy {flags.warmup_strategy} is not rebuilt: there are linear and lars")
    else:
        yield from ("--optimizer", OPTIMIZERS[name])
    yield from ("--lr", str(flags.lr), "--weight-decay", str(flags.wd))
    if name in ("sgd", "nag", "lbsgd", "lars"):
        yield from ("--momentum", str(flags.mom))
    if name == "nag":
        yield "--nesterov"
    if name == "lbsgd":
        yield from ("--warmup", str(flags.warmup_epochs))


def _schedule(flags: argparse.Namespace) -> list[str]:
    """Returns the learning rate's schedule: steps at given epochs, or `pow2`. MXNet-G's goes down every so often."""
    if flags.lr_factor_epoch:
        return _step("--schedule-every", str(flags.lr_factor_epoch), flags.lr_factor)
    steps = flags.lr_step_epochs
    if not steps or flags.lr_factor >= 1:
        return []
    if "pow" in steps:
        power = steps.replace("pow", "").strip(" -") or "1"
        return ["--schedule", "poly", "--schedule-power", power]
    return _step("--schedule-at", steps, flags.lr_factor)


def _step(how: str, value: str, factor: float) -> list[str]:
    return ["--schedule", "step", how, value, "--schedule-factor", str(factor)]


def _codec(flags: argparse.Namespace, gpus: Sequence[str]) -> list[str]:
    """Returns the codec. MXNet's threshold is for sums over a batch; a worker here sends a mean."""
    if flags.gc_type == "none":
        return []
    if flags.gc_type != "2bit":
        raise ConfigError(f"--gc-type {flags.gc_type}: there are none and 2bit; others by --codec (paceline codecs)")
    return ["--codec", f"2bit(threshold={flags.gc_threshold / _batch(flags.batch_size, gpus):g})"]


def _files(flags: argparse.Namespace) -> Iterable[str]:
    """Yields where the run leaves its files, and the precision. Raises ConfigError for resuming without a place."""
    resumes = flags.load_epoch is not None or flags.model_load_epoch is not None or flags.retrain
    if flags.model_prefix:
        yield from ("--out", flags.model_prefix)
    if resumes and not flags.model_prefix:
        raise ConfigError("--load-epoch needs --model-prefix: the folder of the run that is taken up again")
    if resumes:
        yield from ("--resume", "auto")
    if flags.dtype == "float16":
        yield from ("--precision", "fp16")
    elif flags.dtype != "float32":
        raise ConfigError(f"--dtype {flags.dtype}: there are float32 and float16")
