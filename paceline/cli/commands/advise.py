"""`paceline advise` compares all schemes on a cluster and recommends one; it says what it cannot know."""

from __future__ import annotations

import sys

from paceline.cli.commands.race import chosen
from paceline.cli.support.options import Parser, add_settings
from paceline.cli.support.simulation_flags import SimulationFlags, add_flags
from paceline.core.errors import ConfigError, PacelineError
from paceline.launch.local.train import Silent
from paceline.observe.formatting.wrapping import columns
from paceline.observe.terminal.advice import COLUMNS, Prospect, advice_text
from paceline.observe.terminal.progress import make_display

EPILOG = """Every scheme is simulated on the cluster, with messages of the model's size. How many samples a
second reach the model is known then. How many samples the model needs is not. With
--target-accuracy the model given by --model and --data is trained in virtual time under each
scheme, and the advice goes by the time to that accuracy.

examples:
  paceline advise --cluster two-generations --parameters 25000000
  paceline advise --cluster mine.toml --schemes bsp,ssp,esync --model resnet18 --data fashion-mnist
  paceline advise --slowdown 1,1,2,8 --step-ms 20 --target-accuracy 0.9
  paceline advise --from runs/20260101-120000-bsp                   of `train`, or of your own script by `launch`
"""


def main(arguments: list[str]) -> int:
    """Prints the advice, and returns the exit code: 0, or 130 after Ctrl-C.

    An interrupted comparison still prints what is known of the schemes that were looked at.
    Raises ConfigError where the options contradict one another, or where no scheme at all can run on the cluster.
    """
    parser = Parser(prog="paceline advise", description=__doc__, epilog=EPILOG)
    parser.add_argument("--schemes", default="all", help="names separated by commas, or all (default: all)")
    add_settings(parser, leave_out=("scheme", "out"))
    add_flags(parser)
    namespace = parser.parse_all(arguments)
    names = chosen(namespace.schemes)
    scene = SimulationFlags(namespace)
    trained = bool(scene.values.get("stop", {}).get("target_accuracy"))
    if trained and namespace.parameters:
        raise ConfigError("--target-accuracy trains --model; --parameters is the size of one that is not at hand")
    scene.check(timing_only=not trained)
    prospects = Prospects()
    try:
        prospects.look_at_all(scene, names, trained)
    except KeyboardInterrupt:
        if prospects.prospects:
            print(advice_text(prospects.prospects, prospects.refused, _width()))
        print("paceline: interrupted", file=sys.stderr)
        return 130
    if not prospects.prospects:
        raise ConfigError(prospects.refused[0][1])
    print(advice_text(prospects.prospects, prospects.refused, _width()))
    return 0


class Prospects:
    """Collects what was seen of each scheme, and why the others were left out.

    prospects  one entry for each scheme that ran, in the order of `--schemes`
    refused    name and reason of each scheme that cannot run on this cluster, or failed
    """

    def __init__(self) -> None:
        self.prospects: list[Prospect] = []
        self.refused: list[tuple[str, str]] = []

    def look_at_all(self, scene: SimulationFlags, names: list[str], trained: bool) -> None:
        """Simulates each scheme in turn; `trained` says that a model is trained in virtual time, too.

        A scheme that refuses the cluster, such as one that needs servers, is noted and does not end the comparison.
        """
        from paceline.runtime.simulated.estimate import look

        for number, name in enumerate(names, 1):
            print(f"[{number}/{len(names)}] {name}", file=sys.stderr)
            display = make_display(sys.stderr) if trained or sys.stderr.isatty() else Silent()
            try:
                setting = scene.setting(scene.config(scheme=name), timing_only=not trained)
                self.prospects.append(look(setting, display))
            except PacelineError as error:
                self.refused.append((name, str(error)))


def _width() -> int:
    """Returns the columns of a line: those of the terminal up to COLUMNS, and COLUMNS where output goes to a file."""
    return min(COLUMNS, columns()) if sys.stdout.isatty() else COLUMNS
