"""A model of one's own after Theano-MPI's contract, with data of its own, and the rule that trains it.

python examples/theanompi/own_model.py           two workers of this machine, bulk synchronous
python examples/theanompi/own_model.py EASGD     elastic averaging

Theano-MPI's script is the last part, unchanged but for the import. What the class has is in
docs/migration-theano-mpi.md; here it is written out. Most models need less: derive from TorchModel.
"""

import sys

import torch
from torch import nn

import paceline
from paceline.compat.theanompi import BSP, EASGD, GOSGD


class Digits:
    """The DataClass: batches of 1,797 small pictures, each rank every size-th batch."""

    def __init__(self, rank, size, batch_size):
        x, y = paceline.load_digits()
        self.train, self.test = (x[:1440], y[:1440]), (x[1440:], y[1440:])
        self.rank, self.size, self.batch_size = rank, size, batch_size
        self.n_batch_train = 1440 // (batch_size * size)
        self.n_batch_val = len(x[1440:]) // batch_size

    def batch(self, data, number):
        at = number * self.batch_size % len(data[0])
        return tuple(part[at : at + self.batch_size] for part in data)


class Perceptron:
    """The ModelClass."""

    def __init__(self, config):
        self.epoch, self.n_epochs, self.n_subb = 0, 3, 1
        self.data = Digits(config["rank"], config["size"], batch_size=32)
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.params = list(self.net.parameters())
        self.optimizer = torch.optim.SGD(self.params, lr=0.1, momentum=0.9)
        self.at = 0

    def compile_iter_fns(self, sync_type):
        pass

    def train_iter(self, count, recorder):
        recorder.start()
        x, y = self.data.batch(self.data.train, self.at * self.data.size + self.data.rank)
        self.at += 1
        scores = self.net(x)
        loss = nn.functional.cross_entropy(scores, y)
        loss.backward()  # the rule makes the step
        recorder.train_error(count, loss.item(), (scores.argmax(1) != y).float().mean().item())
        recorder.end("calc")

    def val_iter(self, count, recorder):
        x, y = self.data.batch(self.data.test, count)
        with torch.no_grad():
            scores = self.net(x)
        error = (scores.argmax(1) != y).float().mean().item()
        recorder.val_error(count, nn.functional.cross_entropy(scores, y).item(), error, 0.0)

    def reset_iter(self, mode):
        self.at = 0

    def adjust_hyperp(self, epoch):
        for group in self.optimizer.param_groups:
            group["lr"] *= 0.5 if epoch == 1 else 1.0

    def cleanup(self):
        pass


if __name__ == "__main__":
    rule = {"BSP": BSP, "EASGD": EASGD, "GOSGD": GOSGD}[sys.argv[1] if len(sys.argv) > 1 else "BSP"]()
    devices = ["cpu"] * (3 if rule.name == "EASGD" else 2)  # EASGD's first device is the server's
    rule.init(devices=devices, modelfile=__file__, modelclass="Perceptron")
    rule.wait()
