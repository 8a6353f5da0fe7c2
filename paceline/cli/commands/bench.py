"""`paceline bench` measures exchanges, codecs and links of this machine against its limits."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.cli.support.options import Parser
from paceline.core.collective import PEERS
from paceline.core.errors import ConfigError
from paceline.core.paramserver.gradient_check import OFF, WARN
from paceline.core.registry import nearest
from paceline.core.scheme import names
from paceline.observe.formatting.wrapping import terminal_width, wrapped

if TYPE_CHECKING:
    from paceline.bench.result import Figure, Note

SUBJECTS = {
    "exchange": "a push and pull: a gradient to the servers, new weights back",
    "mean": "a mean that workers carry among themselves, by each carrier",
    "codec": "encoding a gradient, decoding it, adding it to the weights",
    "overhead": "a training step of one worker, against the plain PyTorch loop",
    "links": "asking another process for nothing, and for a megabyte: of this machine, or of another",
}

HELP = """usage: paceline bench SUBJECT [options]

Measures what this machine reaches and what bounds it (memory, plain sockets, the plain PyTorch loop)
in turns, and prints the medians and their ratio: 1.00 is as fast as the limit.

subjects:
{subjects}

`paceline bench SUBJECT --help` says exactly what is measured, and has the options. For example:

  paceline bench exchange
  paceline bench exchange --transport tcp --workers 2 --servers 2 --mbytes 25 --json exchange.json
  paceline bench codec --codecs 2bit,topk

Figures of a machine that has something else to do are figures of that, too.
"""

EXAMPLES = {
    "exchange": "paceline bench exchange --transport tcp --workers 2 --servers 2 --mbytes 25",
    "mean": "paceline bench mean --workers 4 --carriers ring,butterfly --transport shm",
    "codec": "paceline bench codec --codecs 2bit,topk --mbytes 100 --rounds 7",
    "overhead": "paceline bench overhead --models lenet,cnn --servers 0,1,2",
    "links": "paceline bench links --json links.json",
}
MODELS = ("mlp", "lenet", "cnn", "resnet18")
TRANSPORTS = ("shm", "tcp")
GATES = (OFF, WARN)


def main(arguments: list[str]) -> int:
    """Measures one subject and prints its figures; returns the exit code: 0, or 130 after Ctrl-C.

    What was measured before Ctrl-C is printed, too. Raises ConfigError for an unknown subject or option.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        subjects = "\n".join(f"  {name:<9}  {text}" for name, text in SUBJECTS.items())
        print(wrapped(HELP.format(subjects=subjects), terminal_width()))
        return 0
    subject = arguments[0]
    if subject not in SUBJECTS:
        raise ConfigError(f"bench {subject!r}: no such subject{nearest(subject, SUBJECTS)}")
    # Parsed before anything is imported that takes seconds: a wrong option is told at once.
    options = parsed(subject, arguments[1:])
    figures: list[Figure] = []
    code = 0
    try:
        with progress() as note:
            figures.extend(RUN[subject](options, note))
    except KeyboardInterrupt:
        print("paceline: interrupted", file=sys.stderr)
        code = 130
    if figures:
        show(subject, figures, options)
        if getattr(options, "to", None) and len(figures) == 2:
            from paceline.bench.hosts import link_text

            print(link_text(*figures))
    return code


def show(subject: str, figures: Sequence[Figure], options: argparse.Namespace) -> None:
    """Prints the machine and its load, the table of figures, and writes them to `--json` if that was given.

    Codecs, links and exchanges have a speed in bytes a second. A training step has none, so its table leaves that out.
    """
    from paceline.bench.report import conditions, table, write

    print(f"{conditions()}; medians of {options.rounds} rounds")
    print(table(figures, speed=subject != "overhead"))
    if options.json:
        write(options.json, subject, figures)


@contextlib.contextmanager
def progress() -> Iterator[Note]:
    """Shows on a terminal what is being measured; the line is drawn between measurements only.

    A thread that draws by itself would take time from what is measured. Without a terminal nothing is shown.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda text: None
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda text: live.update(text, refresh=True)


# ---- options ---------------------------------------------------------------------------------------------------------
def parsed(subject: str, arguments: list[str]) -> argparse.Namespace:
    """Returns the options of one subject. Raises ConfigError; nothing has been started then.

    Where no transport is named, all are measured, but shared memory is left out under `--tls`.
    """
    # What is told of a subject is what its module says, and that imports torch.
    wants_help = "-h" in arguments or "--help" in arguments
    text = importlib.import_module(f"paceline.bench.{subject}").__doc__ if wants_help else None
    parser = Parser(prog=f"paceline bench {subject}", description=text, epilog=f"for example: {EXAMPLES[subject]}")
    OPTIONS[subject](parser)
    parser.add_argument("--rounds", type=whole(1, 1000), default=DEFAULT_ROUNDS[subject], help=f"{TURNS} %(default)s)")
    parser.add_argument("--json", metavar="FILE", type=a_file, help="also write the figures there")
    options = parser.parse_all(arguments)
    if getattr(options, "transport", TRANSPORTS) is None:
        options.transport = ["tcp"] if options.tls else list(TRANSPORTS)
    if getattr(options, "tls", False) and "shm" in options.transport:
        raise ConfigError("--tls: shared memory does not leave the machine and needs none; give --transport tcp")
    if "shm" in getattr(options, "transport", ()) and subject != "overhead":
        from paceline.bench.bare_party import there_or_refused

        there_or_refused(options.transport)
    return options


TURNS = "measurements of each side, in turn (default:"
DEFAULT_ROUNDS = {"exchange": 9, "mean": 5, "codec": 3, "overhead": 9, "links": 9}


def _of_exchange(parser: Parser) -> None:
    """Adds the options of `bench exchange`: parties, size of the model, slices, scheme and gradient check."""
    _transport(parser)
    parser.add_argument(
        "--workers", type=whole(1, 64), default=1, help="workers that push and pull at once (default: 1)"
    )
    parser.add_argument("--servers", type=whole(1, 64), default=1, help="servers that share the model (default: 1)")
    _mbytes(parser, 100.0, "of the model")
    parser.add_argument(
        "--slice-mb", type=number(0, 4096), help="MiB of a slice; 0: a server's whole shard (default: shm 0, tcp 4)"
    )
    parser.add_argument("--scheme", type=server_scheme, default="asp", help="asp or bsp (default: asp)")
    parser.add_argument(
        "--gate", type=several(GATES), default=[WARN], help=f"of {', '.join(GATES)}; in turn (default: {WARN})"
    )


def _of_mean(parser: Parser) -> None:
    """Adds the options of `bench mean`: how many workers average a vector of which size, by which carriers."""
    _transport(parser)
    parser.add_argument("--workers", type=whole(2, 64), default=2, help="workers that average (default: 2)")
    _mbytes(parser, 50.0, "of the vector")
    parser.add_argument(
        "--carriers", type=several(PEERS), default=list(PEERS), help=f"of {', '.join(PEERS)} (default: all)"
    )


def _of_codec(parser: Parser) -> None:
    """Adds the options of `bench codec`. The list of codecs imports numpy, so it is made only when it is needed."""
    from paceline.codec import encoders

    _mbytes(parser, 50.0, "of the gradient")
    parser.add_argument(
        "--codecs", type=several(encoders()), default=encoders(), help=f"of {', '.join(encoders())} (default: all)"
    )


def _of_overhead(parser: Parser) -> None:
    """Adds the options of `bench overhead`: models, numbers of servers, the batch and the steps of a round."""
    parser.add_argument(
        "--models", type=several(MODELS), default=["lenet"], help=f"of {', '.join(MODELS)} (default: lenet)"
    )
    parser.add_argument(
        "--servers", type=counts(0, 64), default=[0, 1], help="how many; 0: without any, no launcher (default: 0,1)"
    )
    parser.add_argument(
        "--transport", choices=("auto", *TRANSPORTS), default="auto", help="to the servers (default: auto)"
    )
    parser.add_argument("--batch", type=whole(1, 4096), default=64, help="samples of a step (default: 64)")
    parser.add_argument("--steps", type=whole(1, 1000), default=8, help="steps of a round (default: 8)")


def _transport(parser: Parser) -> None:
    """Adds `--transport` and `--tls`, which three subjects share."""
    parser.add_argument(
        "--transport",
        type=several(TRANSPORTS),
        help="shm (shared memory), tcp (loopback), or both (default: shm,tcp)",
    )
    parser.add_argument("--tls", action="store_true", help="tcp as between hosts: TLS 1.3, each side with its key")


def _of_links(parser: Parser) -> None:
    """Adds the options of `bench links`, of this machine or between two."""
    _transport(parser)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--serve", metavar="HOST:PORT", help="let another machine measure the link to this address")
    either.add_argument("--to", metavar="HOST:PORT", help="measure the link to a machine that runs --serve")


def _mbytes(parser: Parser, default: float, what: str) -> None:
    """Adds `--mbytes`, a size in millions of bytes (not MiB) of float32 numbers; `what` says of which vector."""
    text = f"size {what} of float32, in millions of bytes (default: {default:g})"
    parser.add_argument("--mbytes", type=number(1e-5, 10_000), default=default, help=text)


OPTIONS: dict[str, Callable[[Parser], None]] = {
    "exchange": _of_exchange,
    "mean": _of_mean,
    "codec": _of_codec,
    "overhead": _of_overhead,
    "links": _of_links,
}


# ---- what an option may be -------------------------------------------------------------------------------------------
def whole(low: int, high: int) -> Callable[[str], int]:
    """Returns a reader of whole numbers from `low` to `high`, for argparse; it raises ArgumentTypeError for others."""

    def read(text: str) -> int:
        if not text.lstrip("+-").isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text} is not a whole number between {low} and {high}")
        return int(text)

    return read


def number(low: float, high: float) -> Callable[[str], float]:
    """Returns a reader of numbers from `low` to `high`, for argparse. NaN is refused, as it lies in no range."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not a number between {low:g} and {high:g}")
        return value

    return read


def counts(low: int, high: int) -> Callable[[str], list[int]]:
    """Returns a reader of whole numbers separated by commas, each from `low` to `high`."""
    return lambda text: [whole(low, high)(part) for part in text.split(",")]


def several(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Returns a reader of names separated by commas, all among `known`; a name that comes twice counts once."""

    def read(text: str) -> list[str]:
        given = list(dict.fromkeys(text.split(",")))
        for name in given:
            if name not in known:
                raise argparse.ArgumentTypeError(f"there is no {name!r}{nearest(name, known)}")
        return given

    return read


def server_scheme(name: str) -> str:
    """Returns `name` if it is a scheme whose workers do nothing but push and pull.

    Others would compute or wait between two exchanges, and the benchmark would measure that.
    """
    import paceline.schemes  # noqa: F401  enters the catalogue

    if name not in ("asp", "bsp"):
        if name not in names():
            raise argparse.ArgumentTypeError(f"there is no {name!r}{nearest(name, ('asp', 'bsp'))}")
        raise argparse.ArgumentTypeError(f"{name} does more than push and pull: give asp or bsp")
    return name


def a_file(path: str) -> str:
    """Returns `path` if a file can be written there. It is checked before anything is measured, not after."""
    if not path or Path(path).is_dir() or not Path(path).parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path}: not a file in a folder that there is")
    return path


# ---- subjects --------------------------------------------------------------------------------------------------------
def _exchange(options: argparse.Namespace, note: Note) -> Iterator[Figure]:
    """Measures a push and a pull on each transport under each gradient check, in turn."""
    from paceline.bench import exchange
    from paceline.bench.result import floats

    jobs = [
        exchange.ExchangeJob(
            transport=name,
            length=floats(options.mbytes),
            workers=options.workers,
            servers=options.servers,
            scheme=options.scheme,
            slice_mb=exchange.SLICES_MB[name] if options.slice_mb is None else options.slice_mb,
            tls=options.tls,
            gate=gate,
        )
        for name in options.transport
        for gate in options.gate
    ]
    return exchange.measure(jobs, options.rounds, note)


def _mean(options: argparse.Namespace, note: Note) -> Iterator[Figure]:
    """Measures means among workers, by each carrier."""
    from paceline.bench import mean
    from paceline.bench.result import floats

    job = mean.MeanJob(
        carriers=options.carriers,
        transports=options.transport,
        length=floats(options.mbytes),
        workers=options.workers,
        tls=options.tls,
    )
    return mean.measure(job, options.rounds, note)


def _codec(options: argparse.Namespace, note: Note) -> Iterator[Figure]:
    """Measures what each codec needs to encode, decode and add a gradient."""
    from paceline.bench import codec
    from paceline.bench.result import floats

    return codec.measure(options.codecs, floats(options.mbytes), options.rounds, note)


def _overhead(options: argparse.Namespace, note: Note) -> Iterator[Figure]:
    """Measures a training step with and without Paceline, for each model and each number of servers."""
    from paceline.bench import overhead

    jobs = [
        overhead.OverheadJob(
            model=model,
            servers=servers,
            transport=options.transport,
            batch=options.batch,
            steps=options.steps,
            rounds=options.rounds,
        )
        for model in options.models
        for servers in options.servers
    ]
    return overhead.measure(jobs, note)


def _links(options: argparse.Namespace, note: Note) -> Iterator[Figure]:
    """Measures links between two processes of this machine, or to another machine where one is named."""
    from paceline.bench import links

    if options.serve or options.to:
        return _between_hosts(options, note)
    return links.measure(options.transport, options.rounds, note, tls=options.tls)


def _between_hosts(options: argparse.Namespace, note: Note) -> Iterator[Figure]:
    """Measures the link to `--to`, or serves such measurements at `--serve` until Ctrl-C.

    Both ends need the same token, from the environment. Raises ConfigError without one: a port that answers anybody
    with as many bytes as they ask for is a way to flood others.
    """
    from paceline.bench import hosts
    from paceline.launch.external.rendezvous import shared_secret

    secret = shared_secret("whoever measures a link needs a token")
    if options.to:
        return hosts.measure(options.to, secret, options.rounds, note)
    with contextlib.suppress(KeyboardInterrupt):
        hosts.serve(options.serve, secret, threading.Event())
    return iter(())


RUN: dict[str, Callable[[argparse.Namespace, Note], Iterator[Figure]]] = {
    "exchange": _exchange,
    "mean": _mean,
    "codec": _codec,
    "overhead": _overhead,
    "links": _links,
}
