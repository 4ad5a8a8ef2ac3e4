"""Lesson 08: the Transformer block: attention, an MLP, residual connections, a norm.

Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762), Ba et al. 2016
(https://arxiv.org/abs/1607.06450), He et al. 2016 (https://arxiv.org/abs/1512.03385).

Layout: vectors are (..., tokens, d_model).
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from course_utils.lessons.multi_head import MultiHeadAttention, attend


def layer_norm(
    x: Float[Tensor, "... d_model"],
    gain: Float[Tensor, " d_model"],
    bias: Float[Tensor, " d_model"],
    eps: float = 1e-5,
) -> Float[Tensor, "... d_model"]:
    """Gives every vector mean 0 and variance 1, then times `gain`, plus `bias`.

    Mean and variance are those of the d_model numbers of one vector, the variance
    divided by d_model. `eps` is added to the variance, under the root.
    """
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return centred / torch.sqrt(variance + eps) * gain + bias


def mlp(
    x: Float[Tensor, "... d_model"],
    w_up: Float[Tensor, "d_model d_hidden"],
    b_up: Float[Tensor, " d_hidden"],
    w_down: Float[Tensor, "d_hidden d_model"],
    b_down: Float[Tensor, " d_model"],
) -> Float[Tensor, "... d_model"]:
    """Two linear layers with a ReLU between them, for every vector on its own."""
    return torch.relu(x @ w_up + b_up) @ w_down + b_down


Part = Callable[[Tensor], Tensor]


def post_norm_block(
    x: Float[Tensor, "... tokens d_model"],
    attention: Part,
    mlp: Part,
    norm_1: Part,
    norm_2: Part,
) -> Float[Tensor, "... tokens d_model"]:
    """The block of 2017: after each part the input is added, and the sum is normed."""
    x = norm_1(x + attention(x))
    return norm_2(x + mlp(x))


def count_parameters(d_model: int, d_hidden: int) -> int:
    """How many numbers one block learns (weights, biases and norms), as an int."""
    attention = 4 * (d_model * d_model + d_model)
    mlp = d_model * d_hidden + d_hidden + d_hidden * d_model + d_model
    return attention + mlp + 2 * 2 * d_model


# ------------------------------------------------------------------ the block


class LayerNorm(nn.Module):
    """`layer_norm` with a learned gain and bias, by PyTorch's function."""

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        return F.layer_norm(x, self.gain.shape, self.gain, self.bias, self.eps)


class MLP(nn.Module):
    """`mlp` with learned matrices; `activation` may be another than ReLU."""

    def __init__(
        self, d_model: int, d_hidden: int, activation: Part = torch.relu
    ) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, d_hidden)
        self.down = nn.Linear(d_hidden, d_model)
        self.activation = activation

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        return self.down(self.activation(self.up(x)))


class TransformerBlock(nn.Module):
    """One block: (..., tokens, d_model) in, the same shape out.

    `order(x, attention, mlp, norm_1, norm_2)` says how the parts are joined, `attend`
    what happens in each head (lesson 06), `norm(d_model)` and `mlp(d_model, d_hidden)`
    make the other parts.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_hidden: int,
        *,
        order: Callable = post_norm_block,
        attend: Callable = attend,
        norm: Callable[[int], nn.Module] = LayerNorm,
        mlp: Callable[[int, int], nn.Module] = MLP,
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads, attend)
        self.mlp = mlp(d_model, d_hidden)
        self.norm_1, self.norm_2 = norm(d_model), norm(d_model)
        self.order = order

    def forward(
        self,
        x: Float[Tensor, "... tokens d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "... tokens d_model"]:
        attention = partial(self.attention, mask=mask, is_causal=is_causal)
        return self.order(x, attention, self.mlp, self.norm_1, self.norm_2)


def pre_norm_block(
    x: Float[Tensor, "... tokens d_model"],
    attention: Part,
    mlp: Part,
    norm_1: Part,
    norm_2: Part,
) -> Float[Tensor, "... tokens d_model"]:
    """The block of most models today: each part reads a normed copy of its input.

    Xiong et al. 2020 (https://arxiv.org/abs/2002.04745); lesson 12 is about it.
    """
    x = x + attention(norm_1(x))
    return x + mlp(norm_2(x))
