"""Builds a small GPT: the decoder of GPT-2 (Radford et al. 2019), of any width and depth.

    x <- E[tokens] + P[0..t-1]
    depth times:  x <- x + attention(norm(x));  x <- x + W2 gelu(W1 norm(x))
    logits <- norm(x) E^T

E is [vocabulary, width] and serves as input and output; P is [context, width]; W1 has 4 * width rows. Attention is
causal. DiLoCo's 60 million parameters (Douillard et al. 2023) are `gpt(32_000, 896, 3, 16, 1024)`, up to its
rotary positions; `gpt(50_257, 768, 12, 12, 1024)` is GPT-2 small with its 124,439,808 parameters.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, scaled_dot_product_attention

from paceline.core.errors import ConfigError

_STD = 0.02  # of all initial weights; those that end a residual branch are divided by sqrt(2 * depth)


def gpt(vocabulary: int, width: int, depth: int, heads: int, context: int) -> GPT:
    """Returns the network on the CPU; its weights come from torch's generator.

    It maps int64 [n, t] with t <= context to logits [n, t, vocabulary]. Raises ConfigError for a size below 1 or a
    width that `heads` does not divide.
    """
    if min(vocabulary, width, depth, heads, context) < 1:
        raise ConfigError(f"a gpt of {vocabulary=} {width=} {depth=} {heads=} {context=}: each must be 1 or more")
    if width % heads:
        raise ConfigError(f"a gpt of width {width} and {heads} heads: the width must be a multiple of the heads")
    return GPT(vocabulary, width, depth, heads, context)


class Attention(nn.Module):
    """Computes causal self-attention of [n, t, width] with `heads` heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        parts = self.query_key_value(x).view(n, t, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        result: Tensor = self.output(mixed.transpose(1, 2).reshape(n, t, width))
        return result


class TransformerBlock(nn.Module):
    """Adds attention and a two-layer perceptron to x, each after a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        result: Tensor = x + self.narrow(gelu(self.wide(self.norm2(x)), approximate="tanh"))
        return result


class GPT(nn.Module):
    """Predicts the next token at each place: int64 [n, t] to logits [n, t, vocabulary]."""

    def __init__(self, vocabulary: int, width: int, depth: int, heads: int, context: int) -> None:
        super().__init__()
        self.context = context
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "norm" not in name:
                ends_branch = name.endswith(("attention.output.weight", "narrow.weight"))
                nn.init.normal_(parameter, std=_STD / math.sqrt(2 * depth) if ends_branch else _STD)

    def forward(self, tokens: Tensor) -> Tensor:
        t = tokens.shape[1]
        if t > self.context:
            raise ValueError(f"{t} tokens, and the context is {self.context}")
        x = self.tokens(tokens) + self.places(torch.arange(t, device=tokens.device))
        # Without a layer of its own for the output no tensor is in the model twice.
        logits: Tensor = linear(self.norm(self.blocks(x)), self.tokens.weight)
        return logits
