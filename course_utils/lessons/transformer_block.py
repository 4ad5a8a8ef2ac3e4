"""Lesson 08: the Transformer block: attention, an MLP, residual connections, a norm.

Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762), Ba et al. 2016
(https://arxiv.org/abs/1607.06450), He et al. 2016 (https://arxiv.org/abs/1512.03385).

Layout: vectors are (..., tokens, d_model). Masks are boolean, True = may attend, as in
lesson 05.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from course_utils.lessons.multi_head import (
    N_LETTERS,
    MultiHeadAttention,
    TableBatch,
    TableModel,
    attend,
    copy_weights,
    split_heads,
    table_accuracy,
    table_loss,
    tables,
)
from course_utils.training import one_thread, train


def layer_norm(
    x: Float[Tensor, "... d_model"],
    gain: Float[Tensor, " d_model"],
    bias: Float[Tensor, " d_model"],
    eps: float = 1e-5,
) -> Float[Tensor, "... d_model"]:
    """Gives every vector mean 0 and variance 1, then times `gain`, plus `bias`.

    Mean and variance are those of the d_model numbers of one vector; the variance is
    the mean of the squared distances from the mean. `eps` is added to the variance,
    under the root. Also right where all numbers of a vector are large and nearly equal.
    Any number of leading dimensions, including none; dtype and device follow `x`.
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
    """Two linear layers with a ReLU between them, for every vector on its own.

    The first layer is `w_up` with the bias `b_up`, the second one `w_down` with
    `b_down`. Any number of leading dimensions, including none.
    """
    return torch.relu(x @ w_up + b_up) @ w_down + b_down


def post_norm_block(
    x: Float[Tensor, "... tokens d_model"],
    attention: Callable[[Tensor], Tensor],
    mlp: Callable[[Tensor], Tensor],
    norm_1: Callable[[Tensor], Tensor],
    norm_2: Callable[[Tensor], Tensor],
) -> Float[Tensor, "... tokens d_model"]:
    """The block of 2017. Each part is a function that keeps the shape.

    First `attention`, then `mlp`. What goes into a part is added to what comes out of
    it, and the sum is normed: `norm_1` belongs to the attention, `norm_2` to the MLP.
    Every part is called once.
    """
    x = norm_1(x + attention(x))
    return norm_2(x + mlp(x))


def count_parameters(d_model: int, d_hidden: int) -> int:
    """How many numbers one Transformer block learns, as an int.

    Attention, MLP and both norms, with all their biases. It is the same for every
    number of heads.
    """
    attention = 4 * (d_model * d_model + d_model)
    mlp = d_model * d_hidden + d_hidden + d_hidden * d_model + d_model
    norms = 2 * (d_model + d_model)
    return attention + mlp + norms


# ------------------------------------------------------------------ the block


class LayerNorm(nn.Module):
    """`layer_norm` with a learned gain and bias, by PyTorch's fused function."""

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
        self,
        d_model: int,
        d_hidden: int,
        activation: Callable[[Tensor], Tensor] = torch.relu,
    ) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, d_hidden)
        self.down = nn.Linear(d_hidden, d_model)
        self.activation = activation

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        return self.down(self.activation(self.up(x)))


class TransformerBlock(nn.Module):
    """One block: vectors (..., tokens, d_model) in, the same shape out.

    `order(x, attention, mlp, norm_1, norm_2)` says how the parts are joined, `attend`
    what happens in each head (lesson 06). `norm(d_model)` and `mlp(d_model, d_hidden)`
    make the other parts. Masks are those of `MultiHeadAttention`, and so are errors.
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


# Xiong et al. 2020 (https://arxiv.org/abs/2002.04745). Learners write it in lesson 12.
def pre_norm_block(
    x: Float[Tensor, "... tokens d_model"],
    attention: Callable[[Tensor], Tensor],
    mlp: Callable[[Tensor], Tensor],
    norm_1: Callable[[Tensor], Tensor],
    norm_2: Callable[[Tensor], Tensor],
) -> Float[Tensor, "... tokens d_model"]:
    """The block with its norms inside the branches. Each part keeps the shape.

    First `attention`, then `mlp`. Each reads a normed copy of the vectors, from
    `norm_1` and `norm_2`. What it gives is added to the vectors themselves, which are
    never normed. Every part is called once.
    """
    x = x + attention(norm_1(x))
    return x + mlp(norm_2(x))


@torch.no_grad()
def copy_block_weights(
    theirs: nn.TransformerEncoderLayer, ours: TransformerBlock
) -> None:
    """Puts the weights of PyTorch's block into ours, and the norms' eps.

    The order of the norms, the activation and dropout are no weights: they are not
    copied. Raises ValueError when `theirs` has no biases; other differences of size
    raise in `copy_`.
    """
    copy_weights(theirs.self_attn, ours.attention)
    block: Any = ours  # of any MLP and norm whose weights have these names
    pairs = (theirs.linear1, block.mlp.up), (theirs.linear2, block.mlp.down)
    for linear, layer in pairs:
        layer.weight.copy_(linear.weight)
        layer.bias.copy_(linear.bias)
    for norm, layer in (theirs.norm1, block.norm_1), (theirs.norm2, block.norm_2):
        layer.gain.copy_(norm.weight)
        layer.bias.copy_(norm.bias)
        layer.eps = norm.eps


# ------------------------------------------------------------------ who meets whom


def position_jacobian(
    function: Callable[[Tensor], Tensor], x: Float[Tensor, "tokens d_model"]
) -> Float[Tensor, "tokens tokens"]:
    """How much each output vector (row) changes with each input vector (column).

    The norm of the matrix of all derivatives of the one by the other; 0 means that the
    output does not depend on that input at all, near `x`.
    """
    jacobian = torch.func.jacrev(function)(x)  # (tokens, d_out, tokens, d_model)
    return jacobian.square().sum(dim=(1, 3)).sqrt().detach()


# ------------------------------------------------------------------ counted products


class Product(NamedTuple):
    """A matrix product (rows, inner) times (inner, columns), `count` times at once."""

    weight: str  # the parameter that is one of the factors; "" if there is none
    count: int
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """Each of the numbers is a sum of `inner` products: as many additions."""
        return 2 * self.count * self.rows * self.inner * self.columns


def storage(tensor: Tensor) -> int:
    """Where the numbers of a tensor are: a transposed matrix has the same place."""
    return tensor.untyped_storage().data_ptr()


class ProductCounter(TorchDispatchMode):
    """Writes down every matrix product that PyTorch computes inside `with`."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.products: list[Product] = []
        self.weights = {
            storage(weight): name for name, weight in module.named_parameters()
        }

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in ("mm", "bmm", "addmm", "baddbmm"):
            left, right = args[-2:]  # the `add` versions have the bias before them
            weight = self.weights.get(
                storage(right), self.weights.get(storage(left), "")
            )
            count = left.shape[0] if left.ndim == 3 else 1
            rows, inner = left.shape[-2:]
            self.products.append(Product(weight, count, rows, inner, right.shape[-1]))
        return func(*args, **(kwargs or {}))


class JointAttention(MultiHeadAttention):
    """The same layer, with queries, keys and values from one product."""

    def __init__(self, separate: MultiHeadAttention) -> None:
        d_model = separate.output.in_features
        super().__init__(d_model, separate.n_heads, separate.attend)
        self.output = separate.output
        three = separate.to_queries, separate.to_keys, separate.to_values
        del self.to_queries, self.to_keys, self.to_values
        self.joint = nn.Linear(d_model, 3 * d_model)
        with torch.no_grad():
            self.joint.weight.copy_(torch.cat([layer.weight for layer in three]))
            self.joint.bias.copy_(torch.cat([layer.bias for layer in three]))

    def project(self, x: Tensor, data: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Raises ValueError unless `data` is `x`: only self-attention has one input."""
        if data is not x:
            raise ValueError("one product needs one input, but data is not x")
        q, k, v = (split_heads(p, self.n_heads) for p in self.joint(x).chunk(3, -1))
        return q, k, v


# ------------------------------------------------------------------ deep stacks


def without_residuals(
    x: Tensor,
    attention: Callable[[Tensor], Tensor],
    mlp: Callable[[Tensor], Tensor],
    norm_1: Callable[[Tensor], Tensor],
    norm_2: Callable[[Tensor], Tensor],
) -> Tensor:
    """The block of 2017 without its residual connections."""
    return norm_2(mlp(norm_1(attention(x))))


def without_norms(
    x: Tensor,
    attention: Callable[[Tensor], Tensor],
    mlp: Callable[[Tensor], Tensor],
    norm_1: Callable[[Tensor], Tensor],
    norm_2: Callable[[Tensor], Tensor],
) -> Tensor:
    """The block of 2017 without its norms, which are not used."""
    x = x + attention(x)
    return x + mlp(x)


def without_both(
    x: Tensor,
    attention: Callable[[Tensor], Tensor],
    mlp: Callable[[Tensor], Tensor],
    norm_1: Callable[[Tensor], Tensor],
    norm_2: Callable[[Tensor], Tensor],
) -> Tensor:
    """Only attention and MLP, one after the other."""
    return mlp(attention(x))


def deep_model(depth: int, order: Callable, start: float = 1.0) -> TableModel:
    """Lesson 06's model with `depth` blocks in the place of its one attention.

    All matrices of the blocks start `start` times as large as PyTorch makes them.
    """
    model = TableModel(n_heads=2, d_model=32)
    blocks = (TransformerBlock(32, 2, 64, order=order) for _ in range(depth))
    model.add_module("attention", nn.Sequential(*blocks))
    with torch.no_grad():
        for weight in model.attention.parameters():
            if weight.ndim == 2:
                weight.mul_(start)
    return model


class Layers(NamedTuple):
    """Numbers of the vectors before the first block and after each one."""

    sizes: list[float]  # root of the mean square of all numbers
    distinct: list[float]  # that of each token minus the mean of all, as a part of it
    gradients: list[float]  # length of the gradient of the loss by these vectors


def through_layers(model: TableModel, batch: TableBatch) -> Layers:
    """What becomes of a batch of tables on its way up, and of the gradient on its way
    down."""
    layers = [model.vectors(batch)]
    for block in model.attention.children():
        layers.append(block(layers[-1]))
    logits = model.answers(layers[-1]).unflatten(-1, (2, N_LETTERS))
    loss = F.cross_entropy(logits.flatten(0, 2), batch.answers.flatten())
    gradients = torch.autograd.grad(loss, layers)
    spread = [x - x.mean(dim=-2, keepdim=True) for x in layers]
    sizes, spreads = (
        [x.square().mean().sqrt().item() for x in vectors]
        for vectors in (layers, spread)
    )
    return Layers(
        sizes,
        [part / whole for part, whole in zip(spreads, sizes, strict=True)],
        [gradient.norm().item() for gradient in gradients],
    )


def train_deep(
    depth: int, order: Callable, start: float, rate: float, seed: int, steps: int
) -> float:
    """Trains a `deep_model` and returns how often its worse question is right.

    Where the loss becomes NaN, training ends and nothing has been learned.
    """
    torch.manual_seed(seed)
    model = deep_model(depth, order, start)
    batches = tables(32, torch.Generator().manual_seed(seed))
    with one_thread(), suppress(ValueError):
        train(model, batches, table_loss, steps=steps, learning_rate=rate)
    new_tables = next(tables(500, torch.Generator().manual_seed(10**6)))
    return table_accuracy(model, new_tables).min().item()
