"""Lesson 12: where the norm stands, and what else became of the block of 2017.

Xiong et al. 2020 (https://arxiv.org/abs/2002.04745) for the place of the norm, Zhang
and Sennrich 2019 (https://arxiv.org/abs/1910.07467) for RMSNorm, Shazeer 2020
(https://arxiv.org/abs/2002.05202) for SwiGLU, Shazeer et al. 2017
(https://arxiv.org/abs/1701.06538) and Fedus et al. 2022
(https://arxiv.org/abs/2101.03961) for the mixture of experts, Henry et al. 2020
(https://arxiv.org/abs/2010.04245) for normed queries and keys, Xiao et al. 2024
(https://arxiv.org/abs/2309.17453) for the first token.

Layout: vectors are (..., tokens, d_model).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from course_utils.lessons.language_model import (
    COPY_RATE,
    COPY_STEPS,
    N_BYTES,
    N_LETTERS,
    CopyModel,
    LanguageModel,
    Repeats,
    attend_rotary,
    copy_loss,
    repeats,
    window_loss,
    windows,
)
from course_utils.lessons.multi_head import (
    TableBatch,
    TableModel,
    attend,
    table_accuracy,
    table_loss,
    tables,
)
from course_utils.lessons.transformer_block import (
    MLP,
    LayerNorm,
    TransformerBlock,
    deep_model,
    post_norm_block,
    pre_norm_block,
    through_layers,
)
from course_utils.training import one_thread, train


def rms_norm(
    x: Float[Tensor, "... d_model"],
    gain: Float[Tensor, " d_model"],
    eps: float = 1e-5,
) -> Float[Tensor, "... d_model"]:
    """Divides every vector by the root of the mean of its squares, then times `gain`.

    The mean of the squares is that of the d_model numbers of one vector. `eps` is added
    to it, under the root. No mean is subtracted, and there is no bias. Any number of
    leading dimensions, including none; dtype and device follow `x`.
    """
    mean_square = x.square().mean(dim=-1, keepdim=True)
    return x * torch.rsqrt(mean_square + eps) * gain


def swiglu(
    x: Float[Tensor, "... d_model"],
    w_gate: Float[Tensor, "d_model d_hidden"],
    w_up: Float[Tensor, "d_model d_hidden"],
    w_down: Float[Tensor, "d_hidden d_model"],
) -> Float[Tensor, "... d_model"]:
    """An MLP whose hidden numbers are multiplied by gates, for every vector on its own.

    The gates are SiLU(x w_gate), where SiLU(z) = z · sigmoid(z). They multiply x w_up,
    number by number, and the products go through `w_down`. There are no biases. Any
    number of leading dimensions, including none.
    """
    return (F.silu(x @ w_gate) * (x @ w_up)) @ w_down


def route_top_k(
    logits: Float[Tensor, "... experts"], k: int
) -> tuple[Float[Tensor, "... k"], Int[Tensor, "... k"]]:
    """The gates and the numbers of the `k` experts that each token goes to.

    They are the experts with the k largest logits, the largest first. Of equal logits,
    that of the expert with the smaller number comes first. The gates say how much the
    output of each of them counts: they are positive, sum to 1 over the chosen experts,
    and have the ratios of the exponentials of their logits. The logits of experts that
    were not chosen do not change them.

    1 <= k <= experts. The numbers of the experts are int64. Any number of leading
    dimensions, including none.
    """
    ordered, experts = logits.sort(dim=-1, descending=True, stable=True)
    return torch.softmax(ordered[..., :k], dim=-1), experts[..., :k]


# ------------------------------------------------------------------ deep stacks

DEPTH, D_MODEL = 12, 32
RATE, STEPS, WARMUP = 5e-3, 200, 0.5  # about 3 s on one core
SMALL_ENTRY = 0.1
LOOKS = (0, 1, 3, 10, 20)  # after so many steps we look into the stack


def post_stack(depth: int) -> TableModel:
    """Lesson 08's model of `depth` blocks: each norm stands behind a sum."""
    return deep_model(depth, post_norm_block)


def pre_stack(depth: int) -> TableModel:
    """Lesson 08's model of `depth` pre-norm blocks, and one more norm behind them."""
    model = deep_model(depth, pre_norm_block)
    blocks = *model.attention.children(), LayerNorm(D_MODEL)
    model.add_module("attention", nn.Sequential(*blocks))
    return model


@torch.no_grad()
def draw_as_in_the_theorem(model: TableModel, entry: float = SMALL_ENTRY) -> None:
    """The start of Xiong et al.: Xavier's matrices, and biases of zero.

    The vectors that enter the stack become `entry` times as large.
    """
    for name, weight in model.attention.named_parameters():
        if weight.ndim == 2:
            nn.init.xavier_uniform_(weight)
        elif name.endswith("bias"):
            weight.zero_()
    for table in (model.letters.weight, model.colours.weight, model.seats.table.weight):
        table.mul_(entry)


def block_gradients(model: TableModel, batch: TableBatch) -> list[float]:
    """The length of the loss's gradient by the last matrix of each block."""
    layers = model.attention.named_parameters()
    weights = [weight for name, weight in layers if name.endswith("mlp.down.weight")]
    gradients = torch.autograd.grad(table_loss(model, batch), weights)
    return [gradient.norm().item() for gradient in gradients]


def learning_rates(
    warmup: float, rate: float = RATE, steps: int = STEPS
) -> list[float]:
    """The rate of each step in `train`, for a picture."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], rate)
    cycle = {"total_steps": steps + 1, "pct_start": warmup, "cycle_momentum": False}
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, **cycle)
    rates = []
    for _ in range(steps):
        rates += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    return rates


class Run(NamedTuple):
    """A trained stack, the loss of each step, how often its worse question is right,
    and how distinct the people were at the end of the stack after a few steps."""

    model: TableModel
    losses: list[float]
    accuracy: float
    distinct: dict[int, float]


def watched(
    model: TableModel, batches: Iterable[TableBatch], distinct: dict[int, float]
) -> Iterator[TableBatch]:
    """The same batches; before those of `LOOKS`, it writes into `distinct`."""
    people = next(tables(64, torch.Generator().manual_seed(0)))
    for step, batch in enumerate(batches):
        if step in LOOKS:
            distinct[step] = through_layers(model, people).distinct[-1]
        yield batch


@one_thread()
def train_stack(
    model: TableModel,
    warmup: float,
    seed: int,
    rate: float = RATE,
    steps: int = STEPS,
    clip: float = 1.0,
) -> Run:
    """Trains `model` in place on lesson 06's tables, and looks into it on the way."""
    distinct: dict[int, float] = {}
    batches = watched(model, tables(32, torch.Generator().manual_seed(seed)), distinct)
    settings = {"steps": steps, "learning_rate": rate, "warmup": warmup, "clip": clip}
    losses = train(model, batches, table_loss, **settings)
    new_tables = next(tables(500, torch.Generator().manual_seed(10**6)))
    accuracy = table_accuracy(model, new_tables).min().item()
    return Run(model, losses, accuracy, distinct)


def moved_by_one_step(model: TableModel, batch: TableBatch, rate: float) -> float:
    """How far one step of Adam moves what comes out of the stack.

    The length of the change, as a part of the length of the vectors. The model is
    changed.
    """
    vectors = model.vectors(batch).detach()
    before = model.attention(vectors).detach()
    optimizer = torch.optim.Adam(model.attention.parameters(), rate)
    table_loss(model, batch).backward()
    optimizer.step()
    change = model.attention(vectors).detach() - before
    return (change.norm() / before.norm()).item()


# ------------------------------------------------------------------ other parts


class RMSNorm(nn.Module):
    """`rms_norm` with a learned gain."""

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        return rms_norm(x, self.gain, self.eps)


class OperationCounter(TorchDispatchMode):
    """Writes down what PyTorch computes inside `with`, and with how many numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, int]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        numbers = max(x.numel() for x in (*args, result) if isinstance(x, Tensor))
        self.steps.append((func.overloadpacket.__name__, numbers))
        return result


class SwiGLU(nn.Module):
    """`swiglu` with learned matrices: three of them, where `MLP` has two."""

    def __init__(self, d_model: int, d_hidden: int) -> None:
        super().__init__()
        matrices = [nn.Linear(d_model, d_hidden, bias=False) for _ in range(2)]
        matrices.append(nn.Linear(d_hidden, d_model, bias=False))
        self.gate, self.up, self.down = matrices

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        return swiglu(x, self.gate.weight.T, self.up.weight.T, self.down.weight.T)


def gelu_mlp(d_model: int, d_hidden: int) -> MLP:
    """Lesson 08's MLP with GELU instead of ReLU."""
    return MLP(d_model, d_hidden, activation=F.gelu)


# ------------------------------------------------------------------ experts

BALANCE = 0.02  # the weight of the balance loss


def balance_loss(
    logits: Float[Tensor, "tokens experts"], load: Int[Tensor, " experts"]
) -> Float[Tensor, ""]:
    """1 when all experts have equal work, up to their number when one has all.

    The share of the work that each expert got, times the probability that the router
    gives it on average; summed, times the number of experts (Fedus et al. 2022).
    """
    share = load / load.sum()
    probability = torch.softmax(logits, dim=-1).mean(dim=0)
    return len(load) * (share * probability).sum()


class MixtureOfExperts(nn.Module):
    """Many small MLPs. Each token goes through the `k` that a router chooses.

    With `capacity`, each expert takes the first so many tokens that come to it, and
    adds nothing to the others. `dropped` counts these, `load` all that came.
    """

    def __init__(
        self,
        d_model: int,
        d_hidden: int,
        n_experts: int = 8,
        k: int = 2,
        capacity: int | None = None,
    ) -> None:
        super().__init__()
        self.router = nn.Linear(d_model, n_experts)
        self.experts = nn.ModuleList(
            gelu_mlp(d_model, d_hidden) for _ in range(n_experts)
        )
        self.k, self.capacity = k, capacity

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        tokens = x.reshape(-1, x.shape[-1])
        logits = self.router(tokens)
        gates, chosen = route_top_k(logits, self.k)
        self.load = chosen.flatten().bincount(minlength=len(self.experts))
        self.balance, self.dropped = balance_loss(logits, self.load), 0
        outputs = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, places = (chosen == number).nonzero(as_tuple=True)
            taken = rows[: self.capacity]
            self.dropped += len(rows) - len(taken)
            gate = gates[rows, places][: self.capacity, None]
            outputs = outputs.index_add(0, taken, gate * expert(tokens[taken]))
        return outputs.view_as(x)


@torch.no_grad()
def skew(experts: MixtureOfExperts) -> None:
    """Lets the router begin with a strong liking for the first two experts."""
    experts.router.bias.zero_()
    experts.router.bias[:2] = 3.0
    experts.router.weight.mul_(0.5)


def effective_experts(load: Int[Tensor, " experts"]) -> float:
    """How many equally busy experts would be as mixed: the exponential of the entropy
    of their shares."""
    share = load / load.sum()
    return torch.special.entr(share).sum().exp().item()


# ------------------------------------------------------------------ small models


def small_model(
    d_model: int,
    d_hidden: int,
    n_context: int,
    norm: Callable[[int], nn.Module] = LayerNorm,
    mlp: Callable[[int, int], nn.Module] = gelu_mlp,
) -> LanguageModel:
    """Lesson 09's language model of bytes: two blocks with the given norm and MLP."""
    model = LanguageModel(N_BYTES + 1, d_model, 0, 4, n_context)
    parts = {"order": pre_norm_block, "attend": attend_rotary, "norm": norm, "mlp": mlp}
    model.blocks.extend(TransformerBlock(d_model, 4, d_hidden, **parts) for _ in "12")
    model.add_module("norm", norm(d_model))
    nn.init.normal_(model.table, std=d_model**-0.5)
    return model


def balanced_loss(
    model: nn.Module, tokens: Int[Tensor, "batch time"], weight: float = BALANCE
) -> Float[Tensor, ""]:
    """Nats per byte, plus `weight` times the balance losses of all mixtures."""
    loss = window_loss(model, tokens)
    mixtures = [m for m in model.modules() if isinstance(m, MixtureOfExperts)]
    return loss + weight * sum(mixture.balance for mixture in mixtures)


@one_thread()
def train_small(
    model: LanguageModel,
    ids: Int[Tensor, " length"],
    steps: int,
    seed: int,
    loss: Callable = window_loss,
) -> list[float]:
    """Trains `model` in place on pieces of the ids."""
    generator = torch.Generator().manual_seed(seed)
    pieces = windows(ids, model.n_context, 16, generator)
    return train(model, pieces, loss, steps=steps, learning_rate=3e-3, warmup=0.1)


@torch.no_grad()
def held_out_loss(model: LanguageModel, ids: Int[Tensor, " length"]) -> float:
    """Nats per byte, on the same 128 pieces for every model."""
    pieces = windows(ids, model.n_context, 128, torch.Generator().manual_seed(0))
    return window_loss(model, next(pieces)).item()


# ------------------------------------------------------------------ inside attention


def attend_normed(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    values: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
) -> Float[Tensor, "... queries d_v"]:
    """`attend` with queries and keys of length √d_k: no score is above √d_k."""
    ones = torch.ones(queries.shape[-1], device=queries.device, dtype=queries.dtype)
    normed = rms_norm(queries, ones), rms_norm(keys, ones)
    return attend(*normed, values, mask, is_causal=is_causal)


def with_start(batch: Repeats) -> Repeats:
    """The letters 1 to 23, behind a 0 that says nothing but "here it begins"."""
    tokens = F.pad(batch.tokens % (N_LETTERS - 1) + 1, (1, 0))
    return Repeats(tokens, batch.periods)


@one_thread()
def train_started(model: CopyModel, seed: int) -> list[float]:
    """Trains `model` in place on repeating letters behind a start token."""
    batches = map(with_start, repeats(32, torch.Generator().manual_seed(seed)))
    settings = {"steps": COPY_STEPS, "learning_rate": COPY_RATE, "warmup": 0.1}
    return train(model, batches, copy_loss, **settings)
