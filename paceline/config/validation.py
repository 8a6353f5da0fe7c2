"""Refuses settings that contradict one another, each with the way out.

`toml_file.build` calls `check`, before any process starts. A limit of a single value belongs to its field in
`sections.py`. What depends on the data or the model is checked later, when the workers have measured them.

    check         refuses
    the body      lists without an entry for each worker, runs that nothing ends, shards that do not fit the servers
    _beginning    workers that join late where no server could take them in, and with PowerSGD or --resume
    _optimizer    numbers that the optimizer does not have, and --clip-norm where no server sees the whole gradient
    _model        --width and --dropout for a network of the user's own
    _data         a folder that is not there, a partition for other workers, leases that no server can settle
    _text         an accuracy to reach, or a network of classes, for a text; what is of a text for other data
    _allreduce    a carrier that nobody has a use for, and NCCL without a GPU for each worker
    _precision    fp16 where a worker computes on a CPU
    _gate         --gate reject where no server sees single gradients
    _robust       a robust mean where no server has a contribution of each worker, and with too few workers
    _store        an address that is none, and a store without checkpoints

Every error is one line: which flag, what is wrong, what to give instead.
"""

from __future__ import annotations

from pathlib import Path

from paceline.checkpoint.redis_url import Address
from paceline.config.config import Config
from paceline.config.parsing import shown
from paceline.core.errors import ConfigError
from paceline.core.paramserver.gated_server import settles
from paceline.core.paramserver.gradient_check import REJECT
from paceline.core.paramserver.robust_mean import NONE
from paceline.core.scheme import Scheme
from paceline.core.sharding import parse_shards
from paceline.engine import specs
from paceline.engine.data.partition import read_sharding
from paceline.engine.data.partition_plan import parse_partition
from paceline.engine.data.remote import check_no_credentials, is_remote
from paceline.engine.import_path import is_path
from paceline.live.addresses import check_bind
from paceline.live.same_host.shared_memory import segments_for


def check(config: Config) -> None:
    """Raises ConfigError for settings that contradict one another; only the first contradiction is reported."""
    workers, stop = config.cluster.workers, config.stop
    for flag, entries in (
        ("slowdown", config.cluster.slowdown),
        ("device", config.cluster.device.split(",")),
        ("ranks", config.cluster.ranks.split(",")),
        ("batch-limits", config.cluster.batch_limits),
    ):
        if len(entries) > 1 and len(entries) != workers:
            raise ConfigError(f"--{flag} names {len(entries)} workers, --workers says {workers}")
    _check_ranks(config)
    # One device stands for all workers; a single slowdown does not, so its number must match even then.
    if config.cluster.slowdown and len(config.cluster.slowdown) != workers:
        raise ConfigError(f"--slowdown names {len(config.cluster.slowdown)} workers, --workers says {workers}")
    if config.cluster.min_workers > workers:
        raise ConfigError(f"--min-workers {config.cluster.min_workers}: --workers says {workers}")
    _check_beginning(config)
    if config.cluster.slowdown and not config.cluster.step_ms:
        raise ConfigError("--slowdown multiplies --step-ms: give that too, e.g. --step-ms 20")
    rules = (stop.epochs, stop.samples, stop.seconds, stop.steps, stop.target_accuracy, stop.target_loss)
    if not any(rules) and not stop.until_stopped:
        raise ConfigError(
            "nothing would end the run: give --epochs, --seconds, --steps, --target-accuracy or --target-loss"
        )
    if config.run.script and not stop.until_stopped:
        raise ConfigError(
            f"--script {shown(config.run.script)}: start your own script with `paceline launch` or `race`"
        )
    _check_optimizer(config)
    _check_model(config)
    _check_data(config)
    _check_text(config)
    _check_allreduce(config)
    _check_precision(config)
    _check_gate(config)
    _check_robust(config)
    _check_store(config)
    fractions = parse_shards(config.cluster.shards)
    if fractions and len(fractions) != config.cluster.servers:
        raise ConfigError(f"--shards names {len(fractions)} servers, --servers says {config.cluster.servers}")
    if config.cluster.ack == "replica" and config.cluster.servers < 2:
        raise ConfigError(
            f"--ack replica needs another server to keep the copies, --servers says {config.cluster.servers}: "
            "give --servers 2 or more, or --ack memory"
        )
    # These two raise ConfigError themselves, if this machine cannot share memory or the address is not its own.
    segments_for(config.cluster.transport)
    check_bind(config.cluster.bind, config.cluster.secured)
    config.scheme().check(workers, config.cluster.servers)
    config.scheme().check_batch_limits(config.batch_limits())
    # A codec with a momentum of its own (dgc) must not be used with SGD's.
    momentum = config.optimizer.momentum if config.optimizer.name == "sgd" else 0.0
    config.codecs().check(config.scheme(), config.cluster.servers, momentum, config.cluster.allreduce)


def _check_ranks(config: Config) -> None:
    """Raises ConfigError for several processes of a worker that is no script, for several GPUs of one process, and for
    --torch-distributed where it has no place."""
    if set(config.cluster.ranks.split(",")) != {"1"} and not config.run.script:
        raise ConfigError(
            "--ranks is for a script that calls paceline.join(group=...): `paceline launch --ranks 2 ...`"
        )
    if config.cluster.torch_distributed != "none":
        if not config.run.script:
            raise ConfigError("--torch-distributed is for a script of yours under `paceline launch`")
        if set(config.cluster.ranks.split(",")) != {"1"}:
            raise ConfigError("--torch-distributed: the processes of --ranks have a group of their own already")
    for rank in range(config.cluster.workers):
        gpus = config.device_of(rank).count("+") + 1
        if gpus > 1 and gpus != config.ranks_of(rank):
            raise ConfigError(
                f"--device {config.device_of(rank)}: {gpus} GPUs, and worker {rank} has {config.ranks_of(rank)} "
                f"processes; give --ranks {gpus}"
            )


def _check_beginning(config: Config) -> None:
    """Raises ConfigError where workers would join during training, and the run cannot take them in."""
    cluster = config.cluster
    begin, how = cluster.initial_workers, f"--initial-workers {cluster.initial_workers}"
    if begin > cluster.workers:
        raise ConfigError(f"{how}: --workers {cluster.workers} is the maximum")
    if cluster.beginning == cluster.workers:
        return
    if cluster.min_workers > begin:
        raise ConfigError(f"{how}: --min-workers {cluster.min_workers} would not be there; give at most {begin}")
    # Only servers can answer a member that joins late: in a schedule among workers every transfer has a fixed partner.
    if not cluster.servers or cluster.allreduce not in ("auto", "servers"):
        asked = f"--allreduce {cluster.allreduce}" if cluster.servers else "--servers 0"
        raise ConfigError(
            f"{how}: with {asked} the workers average among themselves, and no worker can join late; "
            "give --servers 1 or more and leave --allreduce out"
        )
    if config.codecs().low_rank:
        raise ConfigError(
            f"{how}: a worker that joins late would not have the factors of powersgd; leave --initial-workers out"
        )
    if config.checkpoint.resume != "never":
        raise ConfigError(f"{how}: a run that goes on from a checkpoint begins with all workers; leave one of them out")


def _check_optimizer(config: Config) -> None:
    """Raises ConfigError for numbers that the optimizer does not have, or that the servers cannot apply."""
    optimizer, schedule, epochs = config.optimizer, config.schedule, config.stop.epochs
    if optimizer.name != "sgd" and optimizer.nesterov:
        instead = "--momentum" if optimizer.name in specs.MOMENTUM else "--beta1"
        raise ConfigError(f"--nesterov is SGD's; {optimizer.name} has {instead} instead")
    if optimizer.nesterov and not optimizer.momentum:
        raise ConfigError("--nesterov needs --momentum above 0")
    scheme, servers = config.scheme(), config.cluster.servers
    if optimizer.name == specs.MUON and scheme.computes:
        raise ConfigError(f"--optimizer muon makes local steps, and {scheme.name} has others: give --scheme muloco")
    # A scheme that has a form with whole updates is made in that form (`Config.scheme`), and passes here.
    if optimizer.clip_norm and servers > 1 and scheme.computes and scheme.server(servers) is not None:
        raise ConfigError(
            f"--clip-norm needs the norm of the whole gradient, and each of {servers} servers sees a part of it: "
            "give --servers 1, or a scheme whose workers make the updates, such as bsp or esync"
        )
    if max(optimizer.beta1, optimizer.beta2) >= 1:
        raise ConfigError("--beta1 and --beta2 must be below 1")
    if optimizer.muon_momentum >= 1:
        raise ConfigError("--muon-momentum must be below 1")
    if schedule.name == "step" and not schedule.factor:
        raise ConfigError("--schedule-factor must be above 0")
    if schedule.at and schedule.name != "step":
        raise ConfigError(f"--schedule-at is for --schedule step, not {schedule.name}")
    if schedule.name not in ("cosine", "poly"):
        return
    if not epochs:
        raise ConfigError(f"--schedule {schedule.name} needs --epochs, to know where it ends")
    if schedule.warmup >= epochs:
        raise ConfigError(
            f"--schedule {schedule.name} needs more --epochs than the {schedule.warmup:g} of its --warmup"
        )


def _check_model(config: Config) -> None:
    """Raises ConfigError where a number is given that only the networks known by name have a use for."""
    if is_path(config.model.name) and (config.model.width != 1 or config.model.dropout):
        flag = "dropout" if config.model.width == 1 else "width"
        raise ConfigError(f"--{flag} is for networks known by name: leave it out, or let {config.model.name} do it")


def _check_data(config: Config) -> None:
    """Raises ConfigError for a folder that is not there, and for a partition that does not fit the
    workers or the scheme.
    """
    workers = config.cluster.workers
    _check_pictures(config)
    if is_remote(config.data.directory):
        check_no_credentials(config.data.directory)
    if config.data.directory and not is_remote(config.data.directory) and not Path(config.data.directory).is_dir():
        raise ConfigError(f"--data-dir {shown(config.data.directory)}: no such folder")
    partition = parse_partition(config.data.partition)
    if partition.weights and len(partition.weights) != workers:
        raise ConfigError(f"--partition names {len(partition.weights)} fractions, --workers says {workers}")
    if partition.leased:
        check_queue(config.data.partition, config.scheme(), config.cluster.servers)
    # Read once to check it against the number of workers; the processes read it again.
    if partition.path:
        read_sharding(Path(partition.path), workers)


def _check_text(config: Config) -> None:
    """Raises ConfigError where a run of a language model has settings of another job, or the other way round."""
    data, model = config.data, config.model.name
    if data.name == specs.LANGUAGE_DATA:
        if config.stop.target_accuracy:
            raise ConfigError(f"--target-accuracy: --data {data.name} has a loss and no accuracy: give --target-loss")
        own_model = config.run.script or is_path(model)
        if not own_model and model not in specs.TOKEN_MODELS:
            raise ConfigError(
                f"--data {data.name} is tokens, and --model {model} takes none: give --model {specs.LANGUAGE_MODEL}"
            )
        return
    if data.file:
        raise ConfigError(f"--data-file is for --data {specs.LANGUAGE_DATA}: give that, or leave it out")
    if model == specs.LANGUAGE_MODEL and not is_path(data.name):
        raise ConfigError(f"--model {model} predicts the next token of a text: give --data {specs.LANGUAGE_DATA}")


def _check_pictures(config: Config) -> None:
    """Raises ConfigError for ways to prepare pictures that the data set has no use for."""
    data = config.data
    if data.mean_file and data.name not in specs.FORMATS:
        raise ConfigError(f"--mean-file is for --data {', '.join(specs.FORMATS)}: leave it out")
    if data.mean_file and not Path(data.mean_file).expanduser().is_file():
        raise ConfigError(f"--mean-file {shown(data.mean_file)}: no such file")
    if is_path(data.name) and (data.resize or data.augment != "none"):
        flag = "resize" if data.resize else "augment"
        raise ConfigError(f"--{flag} is for data known by name: leave it out, or let {data.name} do it")
    if is_remote(data.directory) and data.name in specs.FORMATS and not data.name.startswith("cifar"):
        raise ConfigError(f"--data {data.name} reads a folder of this machine: copy {shown(data.directory)} first")


def check_queue(partition: str, scheme: Scheme, servers: int) -> None:
    """Raises ConfigError where no server can say which samples came into an update."""
    if not settles(scheme, servers):
        raise ConfigError(
            f"--partition {partition}: under {scheme.name} with --servers {servers} no server hears which samples came "
            "into an update; give --partition uniform, or a scheme whose workers push gradients or deltas to servers, "
            "such as bsp, ssp or asp"
        )


def _check_precision(config: Config) -> None:
    """Raises ConfigError for fp16 where a worker may compute on a CPU."""
    if config.model.precision == "fp16" and "cpu" in config.cluster.device:
        raise ConfigError("--precision fp16 needs a GPU for every worker: give --precision bf16, or other --device")


def _check_gate(config: Config) -> None:
    """Raises ConfigError where outliers are to be rejected and no server compares gradients."""
    scheme, servers = config.scheme(), config.cluster.servers
    if config.gate.mode == REJECT and scheme.server(servers) is None:
        raise ConfigError(
            f"--gate reject: nothing is pushed to servers under {scheme.name} with --servers {servers}; "
            "take --gate warn, or a scheme whose workers push, such as asp"
        )


def _check_robust(config: Config) -> None:
    """Raises ConfigError where the rule has nothing to compare, or too few workers to outvote the Byzantine ones."""
    scheme, rule = config.scheme(), config.robust.rule
    if rule == NONE:
        return
    if not scheme.whole_rounds:
        raise ConfigError(
            f"--robust {rule}: under {scheme.name} no server has one contribution of each worker, all computed on the "
            "same weights, which is what it compares; give --scheme bsp, or --robust none"
        )
    if scheme.server(config.cluster.servers) is None:
        raise ConfigError(
            f"--robust {rule}: with --servers 0 gradients are summed on their way, and nobody sees a single one; "
            "give --servers 1"
        )
    config.robust_policy().check(config.cluster.workers)


def _check_store(config: Config) -> None:
    """Raises ConfigError for an address that is none, or that the run would never use."""
    checkpoint = config.checkpoint
    for flag, address in (("store", checkpoint.store), ("resume", checkpoint.resume)):
        try:
            if address and (flag == "store" or "://" in address):
                found = Address.parse(address)
                if flag == "resume" and not found.run:
                    raise ValueError(f"{found} names no run: give redis://host:port/db/RUN")
        except ValueError as error:
            raise ConfigError(f"--{flag}: {error}") from None
    if checkpoint.store and not checkpoint.every:
        raise ConfigError("--store keeps checkpoints, and --checkpoint-every 0 makes none: leave one of them out")


def _check_allreduce(config: Config) -> None:
    """Raises ConfigError for a carrier that the cluster or the scheme has no use for."""
    allreduce, servers = config.cluster.allreduce, config.cluster.servers
    if allreduce == "servers" and not servers:
        raise ConfigError("--allreduce servers needs --servers 1 or more")
    if allreduce == "nccl" and "cpu" in config.cluster.device:
        raise ConfigError("--allreduce nccl needs a GPU of its own for every worker: give --device cuda:0,cuda:1,...")
    if allreduce not in ("auto", "servers") and servers and not config.scheme().uses_mean(servers):
        raise ConfigError(
            f"--allreduce {allreduce}: with servers, the workers of {config.run.scheme} average nothing among "
            "themselves; give --servers 0 where it can do without, or leave --allreduce out"
        )
