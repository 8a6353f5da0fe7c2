"""torch has one random number generator for all threads of a process, and the workers of a run may be threads."""

from __future__ import annotations

import threading

torch_generator = threading.Lock()
"""A thread holds this lock while it seeds the generator, or uses it and restores its state.

If two threads did so at once, each would restore a state that the other draws from: a model that is built meanwhile
would get other weights.
"""
