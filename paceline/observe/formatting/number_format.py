"""Formats numbers as people read them, the same in tables, lines and figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from paceline.core.trace import Leased


def seconds_text(seconds: float) -> str:
    """Returns a duration as `0.42 s`, `4.1 s`, `3 min 20 s` or `2 h 05 min`."""
    if seconds < 0.995:
        return f"{seconds:.2f} s"
    if seconds < 119.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def percent(share: float) -> str:
    """Returns a share from 0 to 1 as `42%`."""
    return f"{100 * share:.0f}%"


def count_text(count: float) -> str:
    """Returns at most five characters: `7.25`, `980`, `9999`, `12.3k`, `4.0M`."""
    if count < 10 and count != int(count):
        return f"{count:.2f}"
    if count < 9999.5:
        return f"{count:.0f}"
    for scale, unit in ((1e3, "k"), (1e6, "M"), (1e9, "G")):
        if count < 99.95 * scale:
            return f"{count / scale:.1f}{unit}"
        if count < 999.5 * scale:
            return f"{count / scale:.0f}{unit}"
    return f"{count / 1e12:.1f}T"


def counted(count: int, noun: str) -> str:
    """Returns a number with its noun: `1 worker`, `4 workers`, `7 processes`."""
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{count} {noun if count == 1 else plural}"


def ranks_text(ranks: Iterable[int]) -> str:
    """Returns ranks as `0-39` or `0-3, 7, 9-12`: consecutive ranks become a range, from three of them on."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def range_text(numbers: Iterable[int]) -> str:
    """Returns `7`, or `6 to 9`; of several numbers the smallest and the largest. There must be one."""
    found = sorted(numbers)
    return str(found[0]) if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def accuracy_text(accuracy: float | None) -> str:
    """Returns an accuracy with three digits, or `-` if nothing was evaluated."""
    return "-" if accuracy is None else f"{accuracy:.3f}"


def loss_text(loss: float | None) -> str:
    """Returns a loss with three significant digits, or `-`."""
    return "-" if loss is None else f"{loss:.3g}"


def loss_with_perplexity(loss: float | None, perplexity: float | None) -> str:
    """Returns a loss, and the perplexity of a language model behind it: `2.31 (perplexity 10.1)`."""
    return loss_text(loss) if perplexity is None else f"{loss_text(loss)} (perplexity {perplexity:.3g})"


def megabytes(count: int) -> str:
    """Returns bytes as megabytes of 10^6, without a unit: one digit after the point below 100."""
    return f"{count / 1e6:.1f}" if count < 1e8 else f"{count / 1e6:.0f}"


def leased_text(leased: Leased) -> str:
    """Returns two lines: how much of leased data is done, and what was given out again, and why."""
    again = {
        "of workers that left or were lost": leased.returned,
        "that came too late or were refused": leased.dropped,
        "of updates that were lost with a server": leased.undone,
    }
    twice = f"{leased.twice:,} of them in a second one, too" if leased.twice else "each in one"
    given = ", ".join(f"{count:,} {whose}" for whose, count in again.items() if count)
    left_out = f"; left out, since refused twice: {leased.left_out:,}" if leased.left_out else ""
    return (
        f"leased samples: {leased.done:,} are in an update, {twice}; {counted(leased.epochs, 'whole epoch')}\n"
        f"given to others: {given or 'none'}{left_out}"
    )


def left_text(left: Mapping[str, Sequence[str]]) -> str:
    """Says what a run has left, by folder, with a line for each."""
    return "\n".join(f"left in {folder}: {' '.join(names)}" for folder, names in left.items())
