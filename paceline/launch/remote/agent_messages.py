"""A launcher and its agents send one JSON object a line, each way, over any stream of bytes.

    state      sender    message    meaning                                                          next
    CALLED     agent     Knock      it has called back: a nonce                                      CALLED
    CALLED     launcher  Challenge  a nonce and a proof (see `agent_handshake.py`)                   CALLED
    CALLED     agent     Hello      which host it is and what it runs on                             KNOWN
    KNOWN      launcher  Begin      the environment, the command (none: Paceline's own worker),      KNOWN
                                    where to listen; after a first Beat; or else Refused
    KNOWN      agent     Begun      the address that parties will listen on; or Refused              READY
    READY      launcher  Prepare    load the data                                                    READY
    READY      agent     Prepared   the data is loaded; or Refused                                   READY
    READY      launcher  Start      start one party: its specification and its keys                  READY
    READY      agent     Said       a line that the party's command printed                          READY
    READY      agent     Ended      a party's process has ended; `why` is empty if all went well     READY
    READY      launcher  Kill       kill a party that was declared lost                              READY
    READY      agent     Leaving    its engine ends it soon, so that the run can be ended in order   READY
    READY      launcher  End        end all parties: SIGTERM first, SIGKILL after `seconds`          ENDING
    ENDING     agent     Over       all have ended                                                   closed
    any        both      Beat       every BEAT_SECONDS; silence of `SILENCE_SECONDS` is a loss       as it was

The stream belongs to one launcher; `message_stream.py` has it, and the seconds of beats and silence. When it closes,
the agent ends everything it started, and itself. Nothing secret is ever said but in Start, so that no argument and no
environment variable has a key or a token in it.
"""

from __future__ import annotations

from typing import Any

from paceline.launch.local.line_messages import LaunchMessage


class AgentBeat(LaunchMessage, frozen=True, kw_only=True, tag="beat"):
    """Says that the sender lives. It has no answer."""


# ---- what an agent is told ---------------------------------------------------------------------------------------
class LauncherChallenge(LaunchMessage, frozen=True, kw_only=True, tag="challenge"):
    """The launcher sends this before anything else, to a process that called back."""

    nonce: bytes
    proof: bytes


class BeginRun(LaunchMessage, frozen=True, kw_only=True, tag="begin"):
    """`environment` is for all parties, `by_role` for those of a kind; `bind`: an interface, address or CIDR."""

    environment: dict[str, str]
    by_role: dict[str, dict[str, str]]
    command: list[str]
    bind: str


class Prepare(LaunchMessage, frozen=True, kw_only=True, tag="prepare"):
    """`workers`: those of this host, each with its rank and which GPU is its own where none is named."""

    config: dict[str, Any]
    workers: list[tuple[int, int]]


class StartProcess(LaunchMessage, frozen=True, kw_only=True, tag="start"):
    """`spec`: a ProcessSpec as JSON. `keys`: files of the party's credentials, by name."""

    spec: str
    keys: dict[str, str]


class Kill(LaunchMessage, frozen=True, kw_only=True, tag="kill"):
    """Asks to kill a party that was declared lost."""

    party: str


class End(LaunchMessage, frozen=True, kw_only=True, tag="end"):
    """Asks to end all parties: SIGTERM first, SIGKILL after `seconds`."""

    seconds: float


# ---- what it says ------------------------------------------------------------------------------------------------
class Knock(LaunchMessage, frozen=True, kw_only=True, tag="knock"):
    """Opens the handshake of an agent that called back."""

    nonce: bytes


class AgentHello(LaunchMessage, frozen=True, kw_only=True, tag="hello", forbid_unknown_fields=False):
    """Says which host an agent is on and what it runs on. Fields that this version does not know are accepted.

    proof      that an agent which called back knows the token of the ticket
    task       the number its engine gave it, or -1
    gpus       which its engine lets it see, as CUDA_VISIBLE_DEVICES has them; "" where nothing is said
    kind       for a party that was started by hand: as what it takes part; `task` is its number then
    protocol   the version of frames that it speaks
    """

    host: str
    pid: int
    python: str
    paceline: str
    torch: str
    protocol: int = 1
    byte_order: str = "little"
    proof: bytes = b""
    task: int = -1
    gpus: str = ""
    kind: str = ""


class Begun(LaunchMessage, frozen=True, kw_only=True, tag="begun"):
    """Says that the agent is ready, and on which address parties will listen."""

    address: str


class AgentPrepared(LaunchMessage, frozen=True, kw_only=True, tag="prepared"):
    """Says that the data is loaded."""

    train_samples: int


class AgentRefused(LaunchMessage, frozen=True, kw_only=True, tag="refused"):
    """Says in one line why this host, or this caller, cannot take part."""

    why: str


class Said(LaunchMessage, frozen=True, kw_only=True, tag="said"):
    """Carries a line that a party's command printed."""

    party: str
    line: str


class AgentProcessEnded(LaunchMessage, frozen=True, kw_only=True, tag="ended"):
    """Says that a party's process has ended, as `ProcessEnded`. `log`: the end of what it printed, if that went to a
    file."""

    party: str
    why: str
    log: str = ""
    lost_coordinator: bool = False
    other_version: bool = False


class RunOver(LaunchMessage, frozen=True, kw_only=True, tag="over"):
    """Says that all parties have ended; or, of a process started by hand, that it ends with exit code `code`."""

    code: int = 0


class Leaving(LaunchMessage, frozen=True, kw_only=True, tag="leaving"):
    """Says that the engine ends this agent soon, so that the run can be ended in order."""


Request = LauncherChallenge | AgentRefused | BeginRun | Prepare | StartProcess | Kill | End | AgentBeat
Event = (
    Knock | AgentHello | Begun | AgentPrepared | AgentRefused | Said | AgentProcessEnded | RunOver | Leaving | AgentBeat
)
