"""A convolutional network on images: augmented batches of a DataLoader, and the model of all after each epoch.

python examples/06_images.py                               alone
paceline launch -n 3 -s 1 --slowdown 1,1,3 python examples/06_images.py     three workers, one of them slow

The plain loop, and what is different below:

    loader = DataLoader(images, 32, shuffle=True)            pace = paceline.join(model, optimizer, scheme="esync")
    for epoch in range(EPOCHS):                              loader = pace.loader(images, 32, epochs=1), in each epoch
        for batch in loader:
            optimizer.zero_grad()                            not needed
            loss_of(model, batch).backward()
            optimizer.step()                                 pace.step()
        print(epoch, accuracy(model))                        with pace.shared_model(): the model of all workers
                                                             pace.close()
"""

import torch
from torch import nn
from torch.utils.data import Dataset

import paceline

EPOCHS = 5


class Digits(Dataset):
    """Images of 8x8 pixels, as dicts; those to train with get noise."""

    def __init__(self, part: slice, *, noisy: bool) -> None:
        images, targets = paceline.load_digits()
        self.images, self.targets, self.noisy = images[part], targets[part], noisy

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        image = self.images[index]
        if self.noisy:
            image = image + 0.1 * torch.randn_like(image)
        return {"image": image, "target": self.targets[index]}


torch.manual_seed(0)
torch.set_num_threads(1)  # a model as small as this gains nothing by more
train, test = Digits(slice(0, 1500), noisy=True), Digits(slice(1500, None), noisy=False)
convolutions = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()]
model = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(288, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loss_of = nn.CrossEntropyLoss()

pace = paceline.join(model, optimizer, scheme="esync")
for epoch in range(EPOCHS):
    for batch in pace.loader(train, 32, epochs=1):
        loss_of(model(batch["image"]), batch["target"]).backward()
        pace.step()
    if pace.rank == 0:
        with pace.shared_model(), torch.no_grad():
            accuracy = (model(test.images).argmax(1) == test.targets).float().mean()
        pace.report(accuracy=float(accuracy))
        print(f"epoch {epoch}: accuracy {accuracy:.3f}")
pace.close()
print(f"worker {pace.rank} of {pace.workers}: {pace.steps} steps")
