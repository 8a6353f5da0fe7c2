"""One call: train on this machine under one scheme, on four workers of which one is eight times slower.

python examples/01_one_call.py
"""

import sys

import paceline

summary = paceline.train(
    data="digits",
    model="mlp",
    scheme="esync",
    workers=4,
    slowdown=[1, 1, 2, 8],
    step_ms=5,
    target_accuracy=0.9,
    seconds=60,
    out=sys.argv[1] if len(sys.argv) > 1 else "",
)
print(f"{summary.scheme}: {summary.test_accuracy:.3f} after {summary.seconds:.1f} s")
for worker in summary.workers:
    print(f"  worker {worker.rank}, {worker.slowdown:g} times slower: {worker.steps} steps")
