"""Builds the LSTM classifier of the Theano tutorials, which Theano-MPI trains on IMDB's reviews.

    tokens -> embedding -> LSTM -> mean of its outputs over the sequence -> linear

Pictures are read row by row, as sequences too, without the embedding.
"""

from __future__ import annotations

from torch import Tensor, nn

from paceline.engine.models.layers import scaled

UNITS = 128
"""Of the embedding and of the LSTM, in the tutorial."""


class SequenceClassifier(nn.Module):
    """Maps a sequence to logits [n, classes]: int64 [n, t] through an embedding, or float32 [n, c, t, w] by rows."""

    def __init__(self, inputs: int, units: int, classes: int, *, tokens: bool) -> None:
        """`inputs`: the size of the vocabulary, or the numbers of one row in all channels."""
        super().__init__()
        self.embedding = nn.Embedding(inputs, units) if tokens else None
        self.lstm = nn.LSTM(units if tokens else inputs, units, batch_first=True)
        self.output = nn.Linear(units, classes)

    def forward(self, x: Tensor) -> Tensor:
        # [n, c, t, w] to [n, t, c * w]
        sequence = x.transpose(1, 2).flatten(2) if self.embedding is None else self.embedding(x)
        outputs, _ = self.lstm(sequence)
        logits: Tensor = self.output(outputs.mean(1))
        return logits


def lstm(shape: tuple[int, int, int], classes: int, width: float) -> nn.Module:
    """Returns the classifier of pictures, with 128 * width units."""
    c, _, w = shape
    return SequenceClassifier(c * w, scaled(UNITS, width), classes, tokens=False)


def lstm_of_tokens(vocabulary: int, classes: int, width: float) -> nn.Module:
    """Returns the classifier of sequences of tokens in 0 .. `vocabulary` - 1, with 128 * width units."""
    return SequenceClassifier(vocabulary, scaled(UNITS, width), classes, tokens=True)
