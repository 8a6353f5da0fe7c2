"""One worker of `paceline launch` that pushes and pulls through `paceline.kvstore`, as mxnet_role.py does with MXNet's.

It obeys the lines that come by the socket named on the command line: `go N` makes N exchanges of the whole vector and
answers with their seconds as JSON; the end of the lines ends the job.
"""

import json
import os
import socket
import sys
import time

import torch

import paceline.kvstore


def main() -> None:
    store, length, address = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    kv = paceline.kvstore.create(store)
    kv.set_optimizer("sgd", lr=0.01)
    gradient, weights = torch.full((length,), 1e-3), torch.zeros(length)
    kv.init(0, weights)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(address)
        lines = sock.makefile("rw")
        print("ready", file=lines, flush=True)
        for line in lines:
            times = []
            for _ in range(int(line.split()[1])):
                began = time.perf_counter()
                kv.push(0, gradient)
                kv.pull(0, out=weights)
                times.append(time.perf_counter() - began)
            print(json.dumps(times), file=lines, flush=True)
    os._exit(0)  # the other side is killed


main()
