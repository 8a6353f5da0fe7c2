"""`MNIST` made of Paceline's digits, which are enlarged to 28 x 28: nothing is downloaded."""

import torch
from torch.utils.data import Dataset

import paceline

TRAIN = 1500


class MNIST(Dataset):
    def __init__(self, root, train=True, download=False, transform=None):
        part = slice(None, TRAIN) if train else slice(TRAIN, None)
        images, targets = paceline.load_digits()
        self.images = torch.nn.functional.interpolate(images[part], (28, 28), mode="bilinear").squeeze(1)
        self.targets, self.transform = targets[part].tolist(), transform

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        image = self.images[index]
        return self.transform(image) if self.transform else image, self.targets[index]
