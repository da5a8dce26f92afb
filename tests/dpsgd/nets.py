"""Small networks with every kind of layer that is read in ghost mode, and rows for them."""

import numpy as np
import torch
from opacus.layers import DPLSTM, DPMultiheadAttention
from torch import nn

CLASSES = 3


class Attention(nn.Module):
    """One block of a transformer on tokens, its position embeddings one for each row."""

    def __init__(self, tokens=11, width=8, length=6):
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.positions = nn.Embedding(length, width)
        self.before = nn.LayerNorm(width)
        self.mixed = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.after = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 12), nn.GELU(), nn.Linear(12, width))
        self.dropped = nn.Dropout(0.0)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        where = torch.arange(x.shape[1], device=x.device).repeat(len(x), 1)
        hidden = self.tokens(x) + self.positions(where)
        q, k, v = self.mixed(self.before(hidden)).chunk(3, dim=-1)
        mixed = nn.functional.scaled_dot_product_attention(
            *(part.unflatten(-1, (2, -1)).transpose(1, 2) for part in (q, k, v)), is_causal=True
        )
        hidden = hidden + self.out(mixed.transpose(1, 2).flatten(2))
        hidden = self.dropped(hidden + self.inner(self.after(hidden)))
        return self.head(hidden.mean(dim=1))


class OpacusAttention(nn.Module):
    """Opacus' own attention."""

    def __init__(self, tokens=11, width=8):
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.mixed = DPMultiheadAttention(width, 2, batch_first=True)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        hidden = self.tokens(x)
        return self.head(self.mixed(hidden, hidden, hidden)[0].mean(dim=1))


class Recurrent(nn.Module):
    """A recurrent layer: its parameters are used once for each token."""

    def __init__(self, tokens=11, width=5):
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.recurrent = DPLSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(self.recurrent(self.tokens(x))[0][:, -1])


class Curved(nn.Module):
    """A layer that is not linear in its parameters, and mixes the entries of a row."""

    def __init__(self, width=5):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / 2)
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        q = (x @ self.weight.sin() + self.shift.exp()).unsqueeze(1)
        return nn.functional.scaled_dot_product_attention(q, q, q).squeeze(1)


def perceptron():
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, CLASSES))


def convolution():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 2, stride=2, groups=2, bias=False),
        nn.InstanceNorm2d(4, affine=True),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


def signal():
    return nn.Sequential(
        nn.Conv1d(2, 3, 3, padding="same", dilation=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.RMSNorm(18),
        nn.Linear(18, CLASSES),
    )


def curved():
    return nn.Sequential(nn.Linear(5, 5), Curved(), nn.Linear(5, CLASSES))


def frozen():
    """Some parameters of every layer are not trained, as with LoRA."""
    net = Attention()
    for p in (net.tokens.weight, net.before.bias, net.mixed.weight, net.inner[0].bias):
        p.requires_grad_(False)
    net.head.requires_grad_(False)
    return net


TOKENS = (6,)
SHAPES = {"image": (2, 4, 4), "signal": (2, 6), "plain": (5,)}
NETS = {
    "perceptron": (perceptron, "plain"),
    "convolution": (convolution, "image"),
    "convolution of a signal": (signal, "signal"),
    "transformer": (Attention, "tokens"),
    "attention of Opacus": (OpacusAttention, "tokens"),
    "recurrent": (Recurrent, "tokens"),
    "not linear": (curved, "plain"),
    "frozen parameters": (frozen, "tokens"),
}


def net(name, rows=12, seed=3):
    """The options of a run of this network: ``make`` and the rows it is ``given``."""
    make, kind = NETS[name]
    rng = np.random.default_rng(seed)
    if kind == "tokens":
        X = rng.integers(11, size=(rows, *TOKENS))
    else:
        X = 2 * rng.normal(size=(rows, *SHAPES[kind]))
    return {"make": make, "given": (X, rng.integers(CLASSES, size=rows)), "rows": rows}
