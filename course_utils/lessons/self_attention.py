"""Lesson 04: self-attention, which knows no order, and ways to give it one.

Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762) for self-attention and sinusoidal
positions, Gehring et al. 2017 (https://arxiv.org/abs/1705.03122) for learned positions,
Su et al. 2021 (https://arxiv.org/abs/2104.09864) for rotary ones, Press et al. 2021
(https://arxiv.org/abs/2108.12409) for a number that is added to each score.

Vectors are rows: `(..., tokens, d)`. Positions count from 0. Shapes that do not fit,
and an order that leaves out a token, raise a ValueError.
"""

from collections.abc import Callable
from itertools import repeat
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_utils.lessons.attention_layer import (
    cross_attention,
    scaled_dot_product_attention,
)
from course_utils.training import one_thread, train


def self_attention(
    x: Float[Tensor, "... tokens d_in"],
    w_q: Float[Tensor, "d_in d_k"],
    w_k: Float[Tensor, "d_in d_k"],
    w_v: Float[Tensor, "d_in d_out"],
) -> tuple[Float[Tensor, "... tokens d_out"], Float[Tensor, "... tokens tokens"]]:
    """Attention of a set of vectors over itself: returns the outputs and the weights.

    As in Vaswani et al. 2017. Queries x W_q, keys x W_k and values x W_v all come from
    `x`. The rest is lesson 03's attention: the weights of one query are the softmax,
    over the keys, of its dot products divided by √d_k; its output is the sum of the
    values, each times its weight. Row i of the weights belongs to query i. Any number
    of leading dimensions, including none; dtype and device stay those of `x`.
    """
    return cross_attention(x, x, w_q, w_k, w_v)


def permute_tokens(
    x: Float[Tensor, "... tokens d"], order: Int[Tensor, " tokens"]
) -> Float[Tensor, "... tokens d"]:
    """The same vectors in another order: result token i is token `order[i]` of `x`.

    `order` holds each of 0 … tokens - 1 exactly once, and says where each vector is
    taken *from*: the order [2, 0, 1] puts token 2 first. Only the tokens move: each
    vector keeps its numbers as they are, also infinity and NaN. Any number of leading
    dimensions, including none; all are put in the same order.
    """
    if order.sort().values.tolist() != list(range(x.shape[-2])):
        raise ValueError(
            f"order must hold each of 0 to {x.shape[-2] - 1} once, got {order.tolist()}"
        )
    return x[..., order, :]


def influence(
    function: Callable[[Float[Tensor, "inputs d_in"]], Float[Tensor, "outputs d_out"]],
    x: Float[Tensor, "inputs d_in"],
) -> Float[Tensor, "outputs inputs"]:
    """How strongly output i moves when input j moves.

    It is the norm of the block ∂output_i / ∂x_j of the Jacobian.
    """
    # (outputs, d_out, inputs, d_in)
    jacobian = torch.autograd.functional.jacobian(function, x)
    return torch.linalg.vector_norm(jacobian, dim=(1, 3))


# ------------------------------------------------------------------ positions


def sinusoidal_encoding(
    n_positions: int, d_model: int
) -> Float[Tensor, "n_positions d_model"]:
    """A vector for every position 0 … n_positions - 1, made of sines and cosines.

    As in Vaswani et al. 2017. Columns 2i and 2i + 1 are a pair: sin(t · f_i) and
    cos(t · f_i), where t is the position (the row, counted from 0) and
    f_i = 10000^(-2i / d_model) is the frequency of pair i = 0, 1, 2, … (i counts pairs,
    not columns). When d_model is odd the last pair has only its sine. Angles are
    computed in float64, since large angles lose digits in float32; the result is
    float32.
    """
    positions = torch.arange(n_positions, dtype=torch.float64)
    even_columns = torch.arange(0, d_model, 2, dtype=torch.float64)
    frequencies = 10000.0 ** (-even_columns / d_model)
    angles = positions.unsqueeze(-1) * frequencies  # (positions, pairs)
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (positions, pairs, 2)
    return pairs.flatten(-2)[:, :d_model].float()


def shift_matrix(m: int, d_model: int) -> Float[Tensor, "d_model d_model"]:
    """The matrix R_m with encoding(t + m) = encoding(t) @ R_m, whatever t is.

    It holds one small rotation per pair. Each pair turns by the angle m · f_i, whose
    sine and cosine stand in row m of the encoding itself. Raises ValueError when
    d_model is odd: a sine without its cosine cannot be turned.
    """
    if d_model % 2:
        raise ValueError(f"d_model must be even, got {d_model}")
    sines, cosines = (
        sinusoidal_encoding(m + 1, d_model)[m].reshape(-1, 2).unbind(dim=-1)
    )
    rotations = torch.stack([cosines, -sines, sines, cosines], dim=-1).reshape(-1, 2, 2)
    return torch.block_diag(*rotations)


class LearnedPositions(nn.Module):
    """A vector for every position, learned like a word's (Gehring et al. 2017)."""

    def __init__(self, n_positions: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(n_positions, d_model)

    def forward(self, n_tokens: int) -> Float[Tensor, "n_tokens d_model"]:
        if n_tokens > self.table.num_embeddings:
            raise ValueError(
                f"there are {self.table.num_embeddings} positions, "
                f"fewer than {n_tokens} tokens"
            )
        return self.table.weight[:n_tokens]


def apply_rotary(
    x: Float[Tensor, "... tokens d_k"], positions: Int[Tensor, " tokens"]
) -> Float[Tensor, "... tokens d_k"]:
    """Turns each pair of columns by an angle that grows with the token's position.

    These are the rotary positions of Su et al. 2021. `x` are queries or keys, d_k is
    even. Columns 2i and 2i + 1 of a token are a point in the plane (the *interleaved*
    layout). At position t this point turns around the origin by the angle
    t · 10000^(-2i / d_k), from the first axis towards the second; it stays in its two
    columns. `positions[j]` is the position of token j; it need not be j, and may be
    large: at 130,000 the result is still as exact as the dtype of `x` allows. Any
    number of leading dimensions, including none; dtype and device stay those of `x`.
    """
    d_k = x.shape[-1]
    if d_k % 2 or positions.shape != x.shape[-2:-1]:
        raise ValueError(
            f"x has shape {tuple(x.shape)} and positions {tuple(positions.shape)}: "
            "needed are (..., tokens, an even number) and (tokens,)"
        )
    frequencies = 10000.0 ** (
        -torch.arange(0, d_k, 2, dtype=torch.float64, device=x.device) / d_k
    )
    angles = positions.unsqueeze(-1) * frequencies  # (tokens, pairs)
    # Float16 would round each product
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(wide), angles.sin().to(wide)
    a, b = x[..., 0::2], x[..., 1::2]
    return (
        torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1)
        .flatten(-2)
        .to(x.dtype)
    )


def half_split_order(d_k: int) -> Int[Tensor, " d_k"]:
    """The columns' order from interleaved to half-split: 0, 2, 4, …, then 1, 3, 5, …

    `x[..., order]` is half-split where `x` is interleaved; `x[..., order.argsort()]` is
    the way back.
    """
    return torch.cat([torch.arange(0, d_k, 2), torch.arange(1, d_k, 2)])


def apply_rotary_half_split(
    x: Float[Tensor, "... tokens d_k"], positions: Int[Tensor, " tokens"]
) -> Float[Tensor, "... tokens d_k"]:
    """The same rotations where pair i is columns i and i + d_k / 2, as in GPT-NeoX."""
    order = half_split_order(x.shape[-1])
    return apply_rotary(x[..., order.argsort()], positions)[..., order]


def rotary_self_attention(
    x: Float[Tensor, "... tokens d_in"],
    w_q: Float[Tensor, "d_in d_k"],
    w_k: Float[Tensor, "d_in d_k"],
    w_v: Float[Tensor, "d_in d_out"],
) -> tuple[Float[Tensor, "... tokens d_out"], Float[Tensor, "... tokens tokens"]]:
    """Self-attention with turned queries and keys; the values stay as they are."""
    positions = torch.arange(x.shape[-2], device=x.device)
    queries, keys = apply_rotary(x @ w_q, positions), apply_rotary(x @ w_k, positions)
    return scaled_dot_product_attention(queries, keys, x @ w_v)


# ------------------------------------------------------------------ a task about order

ALPHABET = "ABcdefghij"  # the token ids 0 and 1 are A and B, the others are fillers


class OrderBatch(NamedTuple):
    """Sequences of token ids, with label 1.0 where A stands before B, else 0.0."""

    tokens: Int[Tensor, "batch tokens"]
    labels: Float[Tensor, " batch"]


def order_batch(
    n_tokens: int,
    batch_size: int,
    generator: torch.Generator,
    places: range | None = None,
) -> OrderBatch:
    """Random sequences with exactly one A and one B; the others are random fillers.

    A and B stand at two different random places, out of all places or out of `places`.
    Raises ValueError when there is no room for both.
    """
    places = range(n_tokens) if places is None else places
    if len(places) < 2 or not 0 <= min(places) <= max(places) < n_tokens:
        raise ValueError(
            f"A and B need two places among {n_tokens} tokens, got {places}"
        )
    tokens = torch.randint(
        2, len(ALPHABET), (batch_size, n_tokens), generator=generator
    )
    drawn = torch.rand(batch_size, len(places), generator=generator).argsort(dim=-1)[
        :, :2
    ]
    a_and_b = torch.tensor(places)[drawn]  # (batch, 2)
    tokens.scatter_(-1, a_and_b, torch.tensor([[0, 1]]).expand(batch_size, 2))
    return OrderBatch(tokens, (a_and_b[:, 0] < a_and_b[:, 1]).float())


def read_tokens(tokens: Int[Tensor, " tokens"]) -> str:
    """The letters of a sequence, for printing."""
    return " ".join(ALPHABET[i] for i in tokens.tolist())


class OrderModel(nn.Module):
    """Embeds tokens, adds positions, attends once; the mean of the votes answers."""

    def __init__(
        self,
        positions: Callable[[int], Tensor] | None = None,
        attention: Callable[..., tuple[Tensor, Tensor]] = self_attention,
        d_model: int = 32,
    ) -> None:
        """`positions(n_tokens)` gives (tokens, d_model), None adds nothing.

        `attention` is called as `self_attention` is.
        """
        super().__init__()
        self.embedding = nn.Embedding(len(ALPHABET), d_model)
        self.positions, self.attention = positions, attention
        self.w_q, self.w_k, self.w_v = (
            nn.Parameter(torch.randn(d_model, d_model) / d_model**0.5) for _ in range(3)
        )
        self.readout = nn.Sequential(
            nn.Linear(d_model, 2 * d_model), nn.ReLU(), nn.Linear(2 * d_model, 1)
        )

    def forward(self, tokens: Int[Tensor, "batch tokens"]) -> Float[Tensor, " batch"]:
        """One logit per sequence: above 0 means "A before B"."""
        x = self.embedding(tokens)  # (batch, tokens, d_model)
        if self.positions is not None:
            x = x + self.positions(tokens.shape[-1]).to(x)
        outputs, _ = self.attention(x, self.w_q, self.w_k, self.w_v)
        # (batch, tokens, 1): every token, with what it has gathered
        votes = self.readout(x + outputs)
        return votes.mean(dim=(-2, -1))


def order_loss(model: nn.Module, batch: OrderBatch) -> Float[Tensor, ""]:
    """The cross-entropy of the two answers, in nats: log 2 = 0.69 is guessing."""
    return F.binary_cross_entropy_with_logits(model(batch.tokens), batch.labels)


# About a second on one core
TRAINED_LENGTH, STEPS, BATCH_SIZE, LEARNING_RATE = 12, 400, 64, 1e-2


@one_thread()
def train_order_model(model: nn.Module, seed: int) -> list[float]:
    """Trains `model` in place and returns the loss of every step.

    Every step has new sequences of 12 tokens. One thread is used.
    """
    generator = torch.Generator().manual_seed(seed)
    batches = (order_batch(TRAINED_LENGTH, BATCH_SIZE, generator) for _ in repeat(None))
    return train(model, batches, order_loss, steps=STEPS, learning_rate=LEARNING_RATE)


@torch.no_grad()
def order_accuracy(
    model: nn.Module, n_tokens: int, places: range | None = None, seed: int = 0
) -> float:
    """The share of right answers on 2,000 new sequences; `seed` draws them.

    A and B stand anywhere, or in `places` only. Guessing gets about 0.5.
    """
    generator = torch.Generator().manual_seed(1000 + seed)
    tokens, labels = order_batch(n_tokens, 2000, generator, places)
    return ((model(tokens) > 0) == (labels > 0)).float().mean().item()


@torch.no_grad()
def answers_by_place(
    model: nn.Module, n_tokens: int, tries: int = 10
) -> Float[Tensor, "place_of_a place_of_b"]:
    """How often `model` answers "A before B" with A at place i and B at place j.

    Each share is one of `tries` sequences with random fillers; where i = j it is NaN.
    """
    a_and_b = torch.cartesian_prod(torch.arange(n_tokens), torch.arange(n_tokens))
    a_and_b = a_and_b[a_and_b[:, 0] != a_and_b[:, 1]]  # (pairs, 2)
    tokens = torch.randint(
        2,
        len(ALPHABET),
        (tries, len(a_and_b), n_tokens),
        generator=torch.Generator().manual_seed(0),
    )
    letters = torch.tensor([0, 1])  # A and B
    tokens.scatter_(
        -1, a_and_b.expand(tries, -1, -1), letters.expand(tries, len(a_and_b), 2)
    )
    says_yes = (model(tokens.flatten(0, 1)) > 0).float().unflatten(0, (tries, -1))
    shares = torch.full((n_tokens, n_tokens), torch.nan)
    shares[a_and_b[:, 0], a_and_b[:, 1]] = says_yes.mean(dim=0)
    return shares
