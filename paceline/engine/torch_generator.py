"""torch has one random number generator for all threads of a process, and the workers of a run may be threads."""

from __future__ import annotations

import threading

torch_generator = threading.Lock()
"""Held by whoever seeds the generator, or borrows it and puts it back as it was.

Of two borrowers at once each would put back what the other draws from: a model that is built meanwhile would have
other weights.
"""
