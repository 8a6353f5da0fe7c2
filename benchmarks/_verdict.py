"""What a script that makes a claim says last, and ends with."""

from __future__ import annotations


def verdict(claim: str, holds: bool) -> int:
    """The exit code."""
    print(f"{claim}: {'holds' if holds else 'DOES NOT HOLD'}", flush=True)
    return 0 if holds else 1
