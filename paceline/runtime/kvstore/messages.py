"""What workers ask of servers, and what they hear.

slice 0, the directory                              slice 1 of server 0, the gate
Declare       a key, or my part of it -> Numbered   Barrier    -> Done, when all have come
UseOptimizer  from now on             -> Done
Rate          its learning rate       -> Done       any other slice: (a part of) one key
Compress      how pushes are encoded  -> Done       Begin      its first value -> Done, when all have come
Who           holds up that slice     -> Ranks      Await      the same of a worker whose value does not count
                                                    Push       -> Done, or the new Value
                                                    Pull       -> Value
any question: -> Refused, with the reason           PullRows   -> Value
                                                    TakeState, TakeTensor, PutTensor, PutState: the optimizer's
"""

from __future__ import annotations

from paceline.core.message import EXACT, INCREMENT, Nature, message
from paceline.core.validation import bounds


@message("kvstore.Declare")
class Declare:
    """`shape` and `dtype` of the whole value; `length` elements of it are here."""

    key: bounds.LongText
    shape: bounds.Integers
    dtype: bounds.LongText
    length: bounds.Integer


@message("kvstore.Numbered")
class Numbered:
    """Answers with the number of the slice in which the key lies from now on."""

    number: bounds.Count


@message("kvstore.Refused")
class KeyRefused:
    """The answer to a request that cannot be served: one line that names the way out."""

    why: bounds.LongText


@message("kvstore.Done")
class Done:
    """Answers a request that has no other result."""


@message("kvstore.Begin")
class BeginStore:
    """The first value of a key, or of a part of it; that of the first worker that sends one is taken."""

    v: bounds.Whole


@message("kvstore.Await")
class Await:
    """The barrier of `init` for a worker whose value does not count."""


@message("kvstore.Push")
class KeyPush:
    """Pushes a value; where `pull` is set, the answer is the new one."""

    v: bounds.Whole
    pull: bool


@message("kvstore.Pull")
class KeyPull:
    """Asks for the value of a key."""


@message("kvstore.PullRows")
class PullRows:
    """`rows`: their numbers, 32-bit integers bit for bit, rising; `width`: elements of a row."""

    rows: bounds.OfKey
    width: bounds.Integer


@message("kvstore.Value")
class Value:
    """Carries a value, some rows of it, or a tensor of an optimizer."""

    v: bounds.OfKey


@message("kvstore.Barrier")
class Barrier:
    """Waits until all workers that are present have sent one."""


@message("kvstore.UseOptimizer")
class UseOptimizer:
    """`nth`: which one this is, counted by each worker. `updater`: an `Updater` as JSON."""

    nth: bounds.Count
    updater: bounds.LongText


@message("kvstore.Rate")
class KeyRate:
    """Sets the learning rate of the optimizer `nth`; that of an older one is ignored."""

    nth: bounds.Count
    lr: bounds.Real


@message("kvstore.Compress")
class Compress:
    """Names a codec, as on a command line, or none."""

    codec: bounds.Name


@message("kvstore.Who")
class Who:
    """Asks which workers hold up the slice `number`, after a timeout."""

    number: bounds.Count


@message("kvstore.Ranks")
class Ranks:
    """Names the workers that a request waits for."""

    ranks: bounds.Ranks


@message("kvstore.TakeState")
class TakeState:
    """Asks for the optimizer state of one key; the answer is a KeyState, after which its tensors may be taken."""


@message("kvstore.State")
class KeyState:
    """Describes the optimizer state of one key: single numbers, tensors of one number, and the names of all other
    tensors."""

    numbers: bounds.Scalars
    single: bounds.Scalars
    names: bounds.Names


@message("kvstore.TakeTensor")
class TakeTensor:
    """Asks for one of the tensors that a KeyState named."""

    name: bounds.Name


@message("kvstore.PutTensor")
class PutTensor:
    """Carries one of the tensors that the PutState after it names."""

    name: bounds.Name
    v: bounds.OfKey


@message("kvstore.PutState")
class PutState:
    """Loads the optimizer state of one key, from these numbers and the tensors that were put before."""

    numbers: bounds.Scalars
    single: bounds.Scalars
    names: bounds.Names


def nature(cls: type) -> Nature:
    """Returns INCREMENT for pushes, which are sums over time: a codec may leave a part of one for the next. All else is
    EXACT."""
    return INCREMENT if cls is KeyPush else EXACT
