"""Lesson 03: attention as a layer of its own, with queries, keys and values.

Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762) for queries, keys, values and the
scale, Miller et al. 2016 (https://arxiv.org/abs/1606.03126) for keys and values apart.

Vectors are rows, so a projection is `data @ w`. All functions take any number of
leading dimensions, including none, and keep dtype and device of their inputs. Leading
dimensions must be equal; nothing is broadcast. Shapes that do not fit raise a
ValueError that names them.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_utils.training import one_thread, train


def similarity_scores(
    queries: Float[Tensor, "... queries d_k"], keys: Float[Tensor, "... keys d_k"]
) -> Float[Tensor, "... queries keys"]:
    """The dot product of every query with every key.

    Row i, column j holds queries_i · keys_j, without any scale. Any number of leading
    dimensions, including none; both inputs have the same ones, and the dtype stays.
    """
    leading, d_k = queries.shape[:-2], queries.shape[-1]
    theirs = (keys.shape[:-2], keys.shape[-1])
    if not 2 <= queries.dim() == keys.dim() or theirs != (leading, d_k):
        raise ValueError(
            f"queries have shape {tuple(queries.shape)} and keys {tuple(keys.shape)}, "
            "but they must be (..., queries, d_k) and (..., keys, d_k): "
            "the same leading dimensions and the same d_k"
        )
    return queries @ keys.transpose(-2, -1)


def scaled_dot_product_attention(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    values: Float[Tensor, "... keys d_v"],
) -> tuple[Float[Tensor, "... queries d_v"], Float[Tensor, "... queries keys"]]:
    """softmax(Q Kᵀ / √d_k) V (Vaswani et al. 2017): the outputs and the weights.

    The weights of one query are the softmax, over the keys, of its dot products divided
    by √d_k. Its output is the sum of all values, each times its weight. Right for
    scores of many thousands too. The dtype stays that of the inputs. Any number of
    leading dimensions, including none; all inputs have the same ones.
    """
    if values.shape[:-1] != keys.shape[:-1]:
        raise ValueError(
            f"keys have shape {tuple(keys.shape)} and values {tuple(values.shape)}, "
            "but they must be (..., keys, d_k) and (..., keys, d_v): "
            "the same leading dimensions and one value per key"
        )
    # Half precision is computed in float32, as PyTorch's own function does it: float16
    # ends at 65,504, and each step would round.
    wide = torch.promote_types(queries.dtype, torch.float32)
    d_k = queries.shape[-1]
    scores = similarity_scores(queries.to(wide), keys.to(wide)) / d_k**0.5
    weights = torch.softmax(scores, dim=-1)
    outputs = weights @ values.to(wide)
    return outputs.to(values.dtype), weights.to(queries.dtype)


def cross_attention(
    queries: Float[Tensor, "... queries d_query"],
    data: Float[Tensor, "... data d_data"],
    w_q: Float[Tensor, "d_query d_k"],
    w_k: Float[Tensor, "d_data d_k"],
    w_v: Float[Tensor, "d_data d_v"],
) -> tuple[Float[Tensor, "... queries d_v"], Float[Tensor, "... queries data"]]:
    """Query vectors look at data vectors: the outputs and the weights.

    `w_q` makes a query of each query vector, `w_k` a key of each data vector, and `w_v`
    a value of each data vector; all vectors are rows. What follows is scaled
    dot-product attention. Queries and data may differ in number and in width. Any
    number of leading dimensions, including none; both have the same ones. The dtype
    stays.
    """
    for name, matrix, vectors in (
        ("w_q", w_q, queries),
        ("w_k", w_k, data),
        ("w_v", w_v, data),
    ):
        if matrix.shape[:-1] != vectors.shape[-1:]:
            raise ValueError(
                f"{name} has shape {tuple(matrix.shape)}, but must be a matrix of "
                f"{vectors.shape[-1]} rows: it meets vectors of {tuple(vectors.shape)}"
            )
    return scaled_dot_product_attention(queries @ w_q, data @ w_k, data @ w_v)


def score_variance(
    queries: Float[Tensor, "... draws d_k"], keys: Float[Tensor, "... draws d_k"]
) -> Float[Tensor, "..."]:
    """The variance, over the draws, of the dot product of a query and its key.

    A draw is one query and the key in the same row. As in `torch.var`, the sum of
    squared distances from the mean is divided by (draws - 1); right also where the dot
    products are large and differ little. At least two draws; any number of leading
    dimensions, including none. Both inputs have the same shape, and the dtype stays.
    """
    if queries.shape != keys.shape:
        raise ValueError(
            f"queries {tuple(queries.shape)} and keys {tuple(keys.shape)} "
            "must have the same shape"
        )
    return (queries * keys).sum(dim=-1).var(dim=-1)


# ---------------------------------------------------------------- how sure a softmax is


def entropy(weights: Float[Tensor, "... n"]) -> Float[Tensor, "..."]:
    """How spread out weights are, in nats.

    It is log n where all n weights are equal, and 0 where one weight is 1. `weights`
    are 0 or more and sum to 1 along the last dimension.
    """
    return -torch.xlogy(weights, weights).sum(dim=-1)


def softmax_gradient(weights: Float[Tensor, "... n"]) -> Float[Tensor, "... n n"]:
    """How the weights of a softmax move with its scores.

    Row i, column j is d weight_i / d score_j. It is w_i (1 - w_i) on the diagonal and
    -w_i w_j elsewhere, so it needs the weights only.
    """
    return torch.diag_embed(weights) - weights.unsqueeze(-1) * weights.unsqueeze(-2)


# ------------------------------------------------------------------ a task: named cards

NAMES, COLOURS = 256, 32
STEPS, LEARNING_RATE, WARMUP = 400, 1.5e-2, 0.1


class Cards(NamedTuple):
    """Cards on a table, and questions about them.

    No two cards of a table have the same name; colours repeat.
    """

    names: Int[Tensor, "batch cards"]
    colours: Int[Tensor, "batch cards"]
    questions: Int[Tensor, "batch questions"]  # the name of one of the cards
    answers: Int[Tensor, "batch questions"]  # the colour of that card


def draw_cards(
    generator: torch.Generator,
    *,
    batch: int = 16,
    cards: int = 60,
    questions: int = 48,
    device: torch.device | str = "cpu",
) -> Cards:
    """New random cards for `batch` tables, and questions about each table."""
    names = torch.rand(batch, NAMES, generator=generator).argsort(dim=1)[:, :cards]
    colours = torch.randint(COLOURS, (batch, cards), generator=generator)
    asked = torch.randint(cards, (batch, questions), generator=generator)
    return Cards(
        *(
            x.to(device)
            for x in (names, colours, names.gather(1, asked), colours.gather(1, asked))
        )
    )


class CardReader(nn.Module):
    """Answers questions about cards: one attention layer, nothing else sees a card."""

    def __init__(
        self, d_k: int, d_v: int, *, tied: bool = False, factor: float = 1.0
    ) -> None:
        """`tied`: the keys are the values too. `factor` multiplies all scores."""
        super().__init__()
        if tied and d_v != d_k:
            raise ValueError(
                f"tied keys and values have one width, got d_k {d_k} and d_v {d_v}"
            )
        self.factor, d_query, d_data = factor, 32, 64
        self.asked = nn.Embedding(NAMES, d_query)
        self.name = nn.Embedding(NAMES, d_data)
        self.colour = nn.Embedding(COLOURS, d_data)
        self.w_q = nn.Parameter(torch.randn(d_query, d_k) / d_query**0.5)
        self.w_k = nn.Parameter(torch.randn(d_data, d_k) / d_data**0.5)
        self.w_v = (
            self.w_k if tied else nn.Parameter(torch.randn(d_data, d_v) / d_data**0.5)
        )
        self.norm = nn.LayerNorm(d_v)
        self.output = nn.Linear(d_v, COLOURS)

    def forward(
        self,
        names: Int[Tensor, "batch cards"],
        colours: Int[Tensor, "batch cards"],
        questions: Int[Tensor, "batch questions"],
    ) -> tuple[
        Float[Tensor, "batch questions colours"], Float[Tensor, "batch questions cards"]
    ]:
        """The logits of the colours for each question, and the attention weights."""
        data = (self.name(names) + self.colour(colours)) / 2**0.5  # variance 1 again
        queries = self.factor * self.asked(questions)
        outputs, weights = cross_attention(queries, data, self.w_q, self.w_k, self.w_v)
        return self.output(self.norm(outputs)), weights


def card_loss(model: Callable, batch: Cards) -> Float[Tensor, ""]:
    """Cross-entropy of the answers, in nats per question."""
    logits, _ = model(batch.names, batch.colours, batch.questions)
    return F.cross_entropy(logits.flatten(0, 1), batch.answers.flatten())


@torch.no_grad()
def share_right(model: Callable, batch: Cards) -> float:
    """The share of the questions that the model answers with the right colour."""
    logits, _ = model(batch.names, batch.colours, batch.questions)
    return (logits.argmax(dim=-1) == batch.answers).float().mean().item()


class Trained(NamedTuple):
    """A reader after its training, with the loss of each step.

    `share_right` is the share of right answers on new cards.
    """

    model: CardReader
    losses: list[float]
    share_right: float


@one_thread()
def train_reader(
    make_model: Callable[[], CardReader],
    *,
    steps: int = STEPS,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Trained:
    """Trains a new reader on batches of new cards, and tests it on 64 other tables.

    The test tables are the same for all readers. It uses one thread.
    """
    torch.manual_seed(seed)
    model = make_model().to(device)
    losses = train(
        model,
        _batches(seed, device),
        card_loss,
        steps=steps,
        learning_rate=LEARNING_RATE,
        warmup=WARMUP,
    )
    test = draw_cards(torch.Generator().manual_seed(10**6), batch=64, device=device)
    return Trained(model, losses, share_right(model, test))


def _batches(seed: int, device: torch.device | str) -> Iterator[Cards]:
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield draw_cards(generator, device=device)
