"""A model of Keras 3 under Theano-MPI's contract: Keras runs on torch, so its weights are torch's own.

python examples/theanompi/keras_model.py         two workers of this machine; needs `pip install 'paceline[keras]'`

Theano-MPI's Keras example was a Wide-ResNet with Adam and BSP_SYNC_TYPE=avg; so is this, but for its size.
"""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch
from keras import layers

import paceline
from paceline.compat.theanompi import BSP
from paceline.compat.theanompi.torch_model import TorchModel


def block(x, channels):
    """Returns two convolutions and a short cut around them."""
    short = layers.Conv2D(channels, 1, padding="same")(x)
    for _ in range(2):
        x = layers.Conv2D(channels, 3, padding="same")(layers.Activation("relu")(layers.BatchNormalization()(x)))
    return layers.Add()([x, short])


class WideResNet(TorchModel):
    """The ModelClass: TorchModel needs the network only."""

    n_epochs, batch_size, learning_rate, lr_step = 3, 32, 0.003, (2,)

    def make_module(self):
        keras.utils.set_random_seed(0)
        pictures = layers.Input((1, 8, 8))
        x = layers.Permute((2, 3, 1))(pictures)
        for channels in (16, 32):
            x = block(x, channels)
        scores = layers.Dense(10)(layers.GlobalAveragePooling2D()(layers.Activation("relu")(x)))
        return keras.Model(pictures, scores)

    def make_optimizer(self, params):
        return torch.optim.Adam(params, self.learning_rate)


if __name__ == "__main__":
    BSP.sync_type = "avg"
    rule = BSP()
    rule.init(devices=["cpu", "cpu"], modelfile=__file__, modelclass="WideResNet")
    rule.wait()
    print("trained with Keras", keras.__version__, "and Paceline", paceline.__version__)
