"""One process of an MXNet 1.9.1 job; its role comes from DMLC_ROLE. Runs in MXNet's own environment, not in ours.

A worker obeys the lines on its standard input: `go N` makes N exchanges of the whole vector and answers with their
seconds as JSON; the end of the input ends the job.
"""

import json
import os
import sys
import time

import mxnet as mx  # a server or scheduler never gets beyond this line: importing runs it until the job is over


def main() -> None:
    store, length = sys.argv[1], int(sys.argv[2])
    kv = mx.kv.create(store)
    kv.set_optimizer(mx.optimizer.create("sgd", learning_rate=0.01, wd=0.0, rescale_grad=1.0))
    gradient, weights = mx.nd.full((length,), 1e-3), mx.nd.zeros((length,))
    kv.init(0, weights)
    mx.nd.waitall()
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line.split()[1])):
            began = time.perf_counter()
            kv.push(0, gradient)
            kv.pull(0, out=weights)
            weights.wait_to_read()
            times.append(time.perf_counter() - began)
        print(json.dumps(times), flush=True)
    if "sync" in store:
        kv.barrier()
    sys.stdout.flush()
    os._exit(0)  # MXNet's own end waits for every party, for ever if one of them is gone


main()
