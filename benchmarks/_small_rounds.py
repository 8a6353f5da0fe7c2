"""Parameters with which short runs come by all that a scheme does."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, list[dict[str, Any]]] = {
    "bsp": [{}, {"steps": 3}, {"steps": 3, "payload": "delta"}, {"updates": "workers"}],
    "asp": [{}, {"steps": 2, "payload": "weights", "memory": "reset"}],
    "dcasgd": [{}, {"variant": "adaptive", "lam": 2.0}, {"variant": "mxnet"}],
    "localsgd": [{"tau": 3}, {"tau": 3, "memory": "average"}],
    "postlocal": [{"tau": 3, "switch": "3 steps"}, {"tau": 3, "switch": "20 samples", "memory": "reset"}],
    "slowmo": [{"tau": 3}],
    "easgd": [{"tau": 3}, {"tau": 3, "synchronous": True}],
    "eamsgd": [{"tau": 3}, {"tau": 3, "synchronous": True}],
    "diloco": [{"h": 4}, {"h": 6, "fragments": 2, "delay": 1}, {"h": 4, "fragments": 2, "eager": True}],
    "asyncdiloco": [{"h": 3}, {"h": 3, "buffer": 2, "c": 0.3, "memory": "reset"}],
    "decoupled": [{"h": 4, "fragments": 1}, {"h": 6, "fragments": 2, "tau": 1}, {"h": 3, "fragments": 1, "tau": 0}],
    "sparseloco": [{"h": 3, "density": 0.25}],
    "muloco": [{"h": 3}],
    "tiers": [
        {"outer": "asyncdiloco(h=3)"},
        {"inner": "localsgd(tau=2)", "outer": "decoupled(h=2, fragments=1, tau=0)"},
        {"outer": "bsp(payload=delta, steps=2)", "inner": "asp"},
        {"outer": "asp"},
    ],
    "halos": [{"h": 2, "k": 2, "local_delay": 2, "global_delay": 2}],
    "noloco": [{"h": 3}],
    "prague": [{"h": 2}],
    "esync": [{}, {"variant": "preprint", "cap": 3, "delayed_ack": False}],
    "hybrid": [{"phases": "bsp until 3 steps; localsgd(tau=3) until 10 steps; asp"}],
}
"""Parameters that give each scheme small rounds, and its variants."""
