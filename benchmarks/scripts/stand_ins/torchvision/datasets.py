"""`MNIST` made of scikit-learn's digits, which are enlarged to 28 x 28: nothing is downloaded."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import Dataset

TRAIN = 1500


class MNIST(Dataset):
    def __init__(self, root, train=True, download=False, transform=None):
        digits = load_digits()
        part = slice(None, TRAIN) if train else slice(TRAIN, None)
        images = torch.tensor(digits.images[part], dtype=torch.float32).unsqueeze(1) / 16
        self.images = torch.nn.functional.interpolate(images, (28, 28), mode="bilinear").squeeze(1)
        self.targets, self.transform = digits.target[part].tolist(), transform

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        image = self.images[index]
        return self.transform(image) if self.transform else image, self.targets[index]
