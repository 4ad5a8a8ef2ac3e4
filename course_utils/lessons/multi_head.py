"""Lesson 06: several small attentions, the heads, side by side.

Vaswani et al. 2017, section 3.2.2 (https://arxiv.org/abs/1706.03762).

Layout: vectors are (..., tokens, d_model), heads are (..., heads, tokens, d_k), and
heads times d_k is d_model. Masks are boolean, True = may attend, as in lesson 05. A
number of heads that does not fit raises a ValueError.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_utils.lessons.attention_layer import similarity_scores
from course_utils.lessons.masking import causal_mask, masked_attention, require_fit
from course_utils.lessons.self_attention import LearnedPositions
from course_utils.training import one_thread


def split_heads(
    x: Float[Tensor, "... tokens d_model"], n_heads: int
) -> Float[Tensor, "... heads tokens d_k"]:
    """Cuts every vector into `n_heads` pieces, one for each head.

    A piece has d_k = d_model / n_heads numbers; d_model is a multiple of n_heads. Head
    0 gets the first d_k numbers of *every* token, head 1 the next d_k, and so on. The
    heads stand before the tokens. Any number of leading dimensions, including none.
    """
    d_model = x.shape[-1]
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(f"{d_model} columns cannot be cut into {n_heads} equal heads")
    return x.unflatten(-1, (n_heads, d_model // n_heads)).transpose(-3, -2)


def merge_heads(
    x: Float[Tensor, "... heads tokens d_k"],
) -> Float[Tensor, "... tokens heads_times_d_k"]:
    """The inverse of `split_heads`: `merge_heads(split_heads(x, n))` is `x`.

    Any number of leading dimensions, including none.
    """
    return x.transpose(-3, -2).flatten(-2)


def multi_head_attention(
    queries: Float[Tensor, "... queries d_query"],
    data: Float[Tensor, "... data d_data"],
    w_q: Float[Tensor, "d_query heads_times_d_k"],
    w_k: Float[Tensor, "d_data heads_times_d_k"],
    w_v: Float[Tensor, "d_data heads_times_d_v"],
    w_o: Float[Tensor, "heads_times_d_v d_out"],
    n_heads: int,
    mask: Bool[Tensor, "..."] | None = None,
) -> tuple[Float[Tensor, "... queries d_out"], Float[Tensor, "... heads queries data"]]:
    """Attention in `n_heads` heads: returns the outputs and the weights of every head.

    `queries @ w_q`, `data @ w_k` and `data @ w_v` are cut into heads. Each head does
    the attention of lesson 05 on its own pieces, with the scale √d_k of one head. Their
    results are put side by side, head 0 first, and multiplied by `w_o`. Self-attention
    is the case in which `queries` and `data` are the same tensor.

    `mask` is True where a query may attend: (queries, data), or with as many dimensions
    as the weights, each of their size or 1; a 1 where the heads would stand means "the
    same mask in all heads". A query that may attend to nothing gets weights and outputs
    of zero. Any number of leading dimensions, including none; dtype and device follow
    the inputs.
    """
    q = split_heads(queries @ w_q, n_heads)
    k = split_heads(data @ w_k, n_heads)
    v = split_heads(data @ w_v, n_heads)
    heads, weights = masked_attention(q, k, v, mask)
    return merge_heads(heads) @ w_o, weights


def attention_matrix_bytes(
    n_queries: int, n_keys: int, n_heads: int, bytes_per_number: int, batch: int = 1
) -> int:
    """How many bytes the attention weights of one layer take, as an int.

    Every head of every sequence has a weight for each query and key.
    """
    return batch * n_heads * n_queries * n_keys * bytes_per_number


# ------------------------------------------------------------------ the layer


def joint_mask(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    mask: Bool[Tensor, "..."] | None,
    is_causal: bool,
) -> Bool[Tensor, "..."] | None:
    """True where `mask` and, if `is_causal`, lesson 05's causal mask allow it.

    None where there is no mask at all. Raises ValueError when `mask` does not fit (see
    `require_fit`).
    """
    if mask is not None:
        require_fit(mask, torch.Size((*queries.shape[:-1], keys.shape[-2])))
    if not is_causal:
        return mask
    causal = causal_mask(queries.shape[-2], keys.shape[-2], device=queries.device)
    return causal if mask is None else mask & causal


def attend_in_steps(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    values: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
) -> Float[Tensor, "... queries d_v"]:
    """The outputs of lesson 05's attention: scores, then weights, then sums."""
    mask = joint_mask(queries, keys, mask, is_causal)
    return masked_attention(queries, keys, values, mask)[0]


def attend(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    values: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
) -> Float[Tensor, "... queries d_v"]:
    """The same outputs from PyTorch's own function, which returns no weights.

    PyTorch aligns `is_causal` to the first key, and takes it without a mask only. In
    all other cases it gets our mask.
    """
    if mask is not None or queries.shape[-2] != keys.shape[-2]:
        mask, is_causal = joint_mask(queries, keys, mask, is_causal), False
    return F.scaled_dot_product_attention(
        queries, keys, values, mask, is_causal=is_causal
    )


class HeadProjections(nn.Module):
    """The learned matrices of multi-head attention, and the cut into heads."""

    def __init__(self, d_model: int, n_heads: int, bias: bool = True) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(
                f"{d_model} columns cannot be cut into {n_heads} equal heads"
            )
        self.n_heads = n_heads
        self.to_queries = nn.Linear(d_model, d_model, bias)
        self.to_keys = nn.Linear(d_model, d_model, bias)
        self.to_values = nn.Linear(d_model, d_model, bias)
        self.output = nn.Linear(d_model, d_model, bias)

    def project(
        self,
        x: Float[Tensor, "... queries d_model"],
        data: Float[Tensor, "... data d_model"],
    ) -> tuple[
        Float[Tensor, "... heads queries d_k"],
        Float[Tensor, "... heads data d_k"],
        Float[Tensor, "... heads data d_k"],
    ]:
        """Queries from `x`, keys and values from `data`, all cut into heads."""
        q = split_heads(self.to_queries(x), self.n_heads)
        k = split_heads(self.to_keys(data), self.n_heads)
        return q, k, split_heads(self.to_values(data), self.n_heads)


class MultiHeadAttention(HeadProjections):
    """Self-attention over `x`, or attention of `x` over `data`, in `n_heads` heads.

    `attend(queries, keys, values, mask, is_causal=...)` is what happens in each head.
    Masks are those of `multi_head_attention`.
    """

    def __init__(
        self, d_model: int, n_heads: int, attend: Callable = attend, bias: bool = True
    ) -> None:
        super().__init__(d_model, n_heads, bias)
        self.attend = attend

    def forward(
        self,
        x: Float[Tensor, "... queries d_model"],
        data: Float[Tensor, "... data d_model"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "... queries d_model"]:
        q, k, v = self.project(x, x if data is None else data)
        return self.output(merge_heads(self.attend(q, k, v, mask, is_causal=is_causal)))

    def weights(
        self,
        x: Float[Tensor, "... queries d_model"],
        data: Float[Tensor, "... data d_model"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "... heads queries data"]:
        """The weights of every head, for maps: by lesson 05, whatever `attend` is."""
        q, k, v = self.project(x, x if data is None else data)
        return masked_attention(q, k, v, joint_mask(q, k, mask, is_causal))[1]


@torch.no_grad()
def copy_weights(theirs: nn.MultiheadAttention, ours: HeadProjections) -> None:
    """Puts the weights of PyTorch's module into ours.

    PyTorch keeps the three projections in one matrix. Raises ValueError when only one
    of the two has biases; other differences of size raise in `copy_`.
    """
    if (theirs.in_proj_bias is None) != (ours.to_queries.bias is None):
        raise ValueError("one of the two modules has biases, the other one has none")
    projections = ours.to_queries, ours.to_keys, ours.to_values
    for projection, weight in zip(
        projections, theirs.in_proj_weight.chunk(3), strict=True
    ):
        projection.weight.copy_(weight)
    ours.output.weight.copy_(theirs.out_proj.weight)
    if theirs.in_proj_bias is not None:
        for projection, bias in zip(
            projections, theirs.in_proj_bias.chunk(3), strict=True
        ):
            projection.bias.copy_(bias)
        ours.output.bias.copy_(theirs.out_proj.bias)


# ------------------------------------------------------------------ two relations

N_PEOPLE, N_LETTERS = 8, 8


class TableBatch(NamedTuple):
    """People round a table. Each has a letter, and a colour that one other has too.

    `asked[..., 0]` is the seat to the left (seat 0 has the last seat at its left),
    `asked[..., 1]` the seat of the person with the same colour. `answers` are the
    letters of these two.
    """

    letters: Int[Tensor, "batch people"]
    colours: Int[Tensor, "batch people"]
    asked: Int[Tensor, "batch people 2"]
    answers: Int[Tensor, "batch people 2"]


def tables(
    batch_size: int, generator: torch.Generator, device: torch.device | str = "cpu"
) -> Iterator[TableBatch]:
    """Yields batches of random tables, without end. `generator` is a CPU generator."""
    seats = torch.arange(N_PEOPLE)
    while True:
        letters = torch.randint(N_LETTERS, (batch_size, N_PEOPLE), generator=generator)
        colours = (seats // 2)[
            torch.rand(batch_size, N_PEOPLE, generator=generator).argsort(dim=-1)
        ]
        same = (colours[:, :, None] == colours[:, None, :]) & ~torch.eye(
            N_PEOPLE, dtype=torch.bool
        )
        partner = same.int().argmax(dim=-1)
        asked = torch.stack(
            [((seats - 1) % N_PEOPLE).expand_as(partner), partner], dim=-1
        )
        answers = letters.unsqueeze(-1).expand_as(asked).gather(1, asked)
        yield TableBatch(
            *(tensor.to(device) for tensor in (letters, colours, asked, answers))
        )


class TableModel(nn.Module):
    """Answers two questions for every person: one attention, and one linear layer."""

    def __init__(self, n_heads: int, d_model: int = 32) -> None:
        super().__init__()
        self.letters = nn.Embedding(N_LETTERS, d_model)
        self.colours = nn.Embedding(N_PEOPLE // 2, d_model)
        self.seats = LearnedPositions(N_PEOPLE, d_model)
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.answers = nn.Linear(d_model, 2 * N_LETTERS)

    def vectors(self, batch: TableBatch) -> Float[Tensor, "batch people d_model"]:
        """One vector for each person: those of letter, colour and seat, added."""
        people = self.letters(batch.letters) + self.colours(batch.colours)
        return people + self.seats(N_PEOPLE)

    def forward(self, batch: TableBatch) -> Float[Tensor, "batch people 2 letters"]:
        """The logits of both answers."""
        logits = self.answers(self.attention(self.vectors(batch)))
        return logits.unflatten(-1, (2, N_LETTERS))

    def weights(self, batch: TableBatch) -> Float[Tensor, "batch heads people people"]:
        """Where each head looks."""
        return self.attention.weights(self.vectors(batch))


def table_loss(model: nn.Module, batch: TableBatch) -> Float[Tensor, ""]:
    """Nats per answer, over both questions and all people."""
    return F.cross_entropy(model(batch).flatten(0, 2), batch.answers.flatten())


@torch.no_grad()
def table_accuracy(model: nn.Module, batch: TableBatch) -> Float[Tensor, " 2"]:
    """The share of right answers, for each of the two questions."""
    return (model(batch).argmax(dim=-1) == batch.answers).float().mean(dim=(0, 1))


@torch.no_grad()
def relation_weights(model: TableModel, batch: TableBatch) -> Float[Tensor, "heads 2"]:
    """The weight that each head gives to the left neighbour and to the partner.

    The mean over the people for whom these are two: where both are one person, all the
    weight would count twice.
    """
    two = batch.asked[..., 0] != batch.asked[..., 1]
    asked = batch.asked[two].unsqueeze(1)  # (cases, 1, 2)
    weights = model.weights(batch).movedim(1, -2)[two]  # (cases, heads, people)
    return weights.gather(-1, asked.expand(-1, weights.shape[1], -1)).mean(dim=0)


# ------------------------------------------------------------------ many bad starts

N_TOKENS, N_VALUES, N_NOISE = 8, 8, 4


class Markers(NamedTuple):
    """Tokens of [value, one-hot | mark, 1 for exactly one token | noise].

    `answers` are the marked tokens' values.
    """

    tokens: Float[Tensor, "seeds batch tokens features"]
    answers: Int[Tensor, "seeds batch"]


def markers(n_seeds: int, batch_size: int, generator: torch.Generator) -> Markers:
    """A random batch for each seed."""
    values = torch.randint(
        N_VALUES, (n_seeds, batch_size, N_TOKENS), generator=generator
    )
    marked = torch.randint(N_TOKENS, (n_seeds, batch_size, 1), generator=generator)
    noise = 0.5 * torch.randn(
        n_seeds, batch_size, N_TOKENS, N_NOISE, generator=generator
    )
    mark = F.one_hot(marked.squeeze(-1), N_TOKENS).unsqueeze(-1)
    return Markers(
        torch.cat([F.one_hot(values, N_VALUES), mark, noise], dim=-1),
        values.gather(-1, marked).squeeze(-1),
    )


class ManyModels(nn.Module):
    """`n_seeds` small models side by side, which share nothing.

    Each has one query and one attention layer, and no path around the attention. The
    query and the key matrix start `gain` times as large as is usual. With
    `equal_queries` the query of every head starts with the same length, as long as it
    is on average.
    """

    def __init__(
        self,
        n_seeds: int,
        n_heads: int,
        gain: float,
        generator: torch.Generator,
        equal_queries: bool = False,
    ) -> None:
        super().__init__()
        self.n_heads = n_heads
        d_model, n_features = 16, N_VALUES + 1 + N_NOISE

        def normal(rows: int, columns: int, std: float) -> Tensor:
            return std * torch.randn(n_seeds, rows, columns, generator=generator)

        query = normal(1, d_model, gain)
        if equal_queries:
            heads = split_heads(query, n_heads)
            query = merge_heads(
                gain * heads.shape[-1] ** 0.5 * heads / heads.norm(dim=-1, keepdim=True)
            )
        self.query = nn.Parameter(query)
        self.w_k = nn.Parameter(normal(n_features, d_model, gain / n_features**0.5))
        self.w_v = nn.Parameter(normal(n_features, d_model, 1 / n_features**0.5))
        self.w_o = nn.Parameter(normal(d_model, N_VALUES, 1 / d_model**0.5))
        self.bias = nn.Parameter(torch.zeros(n_seeds, 1, N_VALUES))

    def weights(
        self, tokens: Float[Tensor, "seeds batch tokens features"]
    ) -> Float[Tensor, "seeds heads batch tokens"]:
        """Where the query of each head looks."""
        queries = split_heads(self.query, self.n_heads)  # (seeds, heads, 1, d_k)
        # (seeds, heads, batch · tokens, d_k)
        keys = split_heads(tokens.flatten(1, 2) @ self.w_k, self.n_heads)
        scores = similarity_scores(queries / queries.shape[-1] ** 0.5, keys)
        return torch.softmax(
            scores.squeeze(-2).unflatten(-1, tokens.shape[1:3]), dim=-1
        )

    def forward(
        self, tokens: Float[Tensor, "seeds batch tokens features"]
    ) -> Float[Tensor, "seeds batch values"]:
        """The logits of the marked token's value."""
        values = split_heads(tokens.flatten(1, 2) @ self.w_v, self.n_heads)
        weighted = self.weights(tokens).flatten(-2).unsqueeze(-1) * values
        # (seeds, heads, batch, d_k)
        heads = weighted.unflatten(-2, tokens.shape[1:3]).sum(dim=-2)
        return merge_heads(heads) @ self.w_o + self.bias


@one_thread()
def train_many(
    n_heads: int,
    gain: float,
    *,
    n_seeds: int = 40,
    steps: int = 300,
    equal_queries: bool = False,
    seed: int = 0,
) -> Float[Tensor, " seeds"]:
    """Trains `n_seeds` models at once and returns the accuracy of each on new cases."""
    generator = torch.Generator().manual_seed(seed)
    models = ManyModels(n_seeds, n_heads, gain, generator, equal_queries)
    optimizer = torch.optim.Adam(models.parameters(), lr=1e-2, fused=True)
    for _ in range(steps):
        batch = markers(n_seeds, 32, generator)
        losses = F.cross_entropy(
            models(batch.tokens).transpose(1, 2), batch.answers, reduction="none"
        )
        optimizer.zero_grad()
        # A sum over the models: no model changes another one's gradient
        losses.mean(dim=1).sum().backward()
        optimizer.step()
    batch = markers(n_seeds, 500, generator)
    with torch.no_grad():
        return (
            (models(batch.tokens).argmax(dim=-1) == batch.answers).float().mean(dim=-1)
        )


def wilson_interval(n_right: int, n: int) -> tuple[float, float]:
    """The 95% confidence interval of a share of `n_right` in `n` (Wilson 1927)."""
    z = 1.96  # a normal number is within 1.96 deviations of its mean in 95% of cases
    middle = n_right + z**2 / 2
    half = z * (n_right * (1 - n_right / n) + z**2 / 4) ** 0.5
    return (middle - half) / (n + z**2), (middle + half) / (n + z**2)


# ------------------------------------------------------------------ memory

_MEASURE = """
import sys
import torch
from course_utils.lessons import multi_head

attend = getattr(multi_head, sys.argv[1])
n_heads, is_causal, *sizes = map(int, sys.argv[2:])
vectors = torch.randn(3, 1, n_heads, max(sizes), 16)
before = None
for n in (16, *sizes):  # the first run loads what PyTorch loads once
    attend(*vectors[..., :n, :].contiguous(), is_causal=bool(is_causal))
    before = before or multi_head.peak_memory()
    print(multi_head.peak_memory() - before)
"""


def peak_memory() -> int:
    """The most memory that this process has ever had, in bytes."""
    # `getrusage` would also count what the parent had before this process was started
    if sys.platform == "linux":
        with open("/proc/self/status", encoding="utf-8") as status:
            line = next(line for line in status if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        import psutil

        return psutil.Process().memory_info().peak_wset
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measured_attention_bytes(
    attend: Callable, n_tokens: Sequence[int], n_heads: int, is_causal: bool = False
) -> list[int]:
    """By how much an attention over N tokens raises the peak memory of a new process.

    `attend` is `attend_in_steps` or `attend`, in float32 with 16 columns a head;
    `n_tokens` are rising numbers N, because a peak never falls.
    """
    settings = (attend.__name__, n_heads, int(is_causal), *n_tokens)
    command = [sys.executable, "-c", _MEASURE, *map(str, settings)]
    # Linux then gives every large block back when it is freed; others do it anyway
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000"}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return [int(line) for line in run.stdout.split()][1:]
