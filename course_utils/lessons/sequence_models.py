"""Lesson 07: three ways to move information along a sequence: an RNN, a CNN, attention.

Vaswani et al. 2017, section 4 and table 1 (https://arxiv.org/abs/1706.03762); van den
Oord et al. 2016 (https://arxiv.org/abs/1609.03499) for causal and dilated convolutions;
Arora et al. 2023 (https://arxiv.org/abs/2312.04927) for recall as a task.

Layout: vectors are (..., time, d_model). All layers are causal: no output depends on a
later input.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_utils.lessons.multi_head import MultiHeadAttention, attend
from course_utils.lessons.self_attention import sinusoidal_encoding
from course_utils.training import one_thread, train


def causal_conv1d(
    x: Float[Tensor, "... time d_in"],
    kernel: Float[Tensor, "k d_in d_out"],
    dilation: int = 1,
) -> Float[Tensor, "... time d_out"]:
    """A convolution over time in which no output reads a later input.

    Output t is the sum of x[t] @ kernel[-1], x[t - dilation] @ kernel[-2],
    x[t - 2 · dilation] @ kernel[-3], and so on back to kernel[0]: the last matrix meets
    the newest vector. Before time 0 all vectors are zero. There is one output for each
    time. Any number of leading dimensions, including none.
    """
    k, n_times = len(kernel), x.shape[-2]
    padded = F.pad(x, (0, 0, (k - 1) * dilation, 0))  # zeros before time 0
    pieces = [padded[..., i * dilation :, :][..., :n_times, :] for i in range(k)]
    # What an output reads, side by side, times the matrices, one under the other
    return torch.cat(pieces, dim=-1) @ kernel.flatten(0, 1)


def receptive_field(kernel_sizes: list[int], dilations: list[int]) -> int:
    """How many inputs lie in the reach of one output of a stack of causal convolutions.

    An int, counted from the oldest input that the output can depend on to the newest,
    both included. Layer i has a kernel of kernel_sizes[i] matrices and the dilation
    dilations[i]. Without any layer an output is its own input: 1.
    """
    layers = zip(kernel_sizes, dilations, strict=True)
    return 1 + sum((k - 1) * dilation for k, dilation in layers)


def path_length(
    reads: Bool[Tensor, "layers positions positions"], start: int, end: int
) -> int:
    """The fewest layers that carry something from position `start` to `end`, as an int.

    reads[l, i, j] is True where position i of layer l reads position j of the layer
    below; below layer 0 is the input. Layers work one after the other, layer 0 first,
    each once. A position knows what it has read in the newest layer, and nothing else.
    0 where `end` is `start`. Raises ValueError where all layers together do not carry
    it there.
    """
    reached = torch.arange(reads.shape[-1], device=reads.device) == start
    for n_layers, layer in enumerate(reads):
        if reached[end]:
            return n_layers
        reached = (layer & reached).any(dim=-1)
    if not reached[end]:
        raise ValueError(f"{len(reads)} layers do not carry {start} to {end}")
    return len(reads)


def layer_flops(n_tokens: int, d_model: int, k: int) -> tuple[int, int, int]:
    """The FLOPs of one GRU, one convolution and one attention layer, each as an int.

    Counted are the matrix products, forward, for one sequence of `n_tokens` vectors of
    `d_model` numbers. A multiplication is one operation, and so is an addition: the
    product of (a, b) and (b, c) has 2·a·b·c. All outputs are `d_model` wide.

    - The GRU is lesson 01's `gru_step`, once for every token.
    - The convolution is `causal_conv1d` with `k` matrices. The zeros before time 0 are
      multiplied like all other vectors.
    - The attention is lesson 06's layer: projections to queries, keys and values, the
      scores and the weighted sums for *all* pairs of tokens, masked or not, and the
      output projection.
    """
    square = 2 * n_tokens * d_model**2  # every token times one (d_model, d_model)
    pairs = 2 * n_tokens**2 * d_model  # one dot product for every pair of tokens
    return 6 * square, k * square, 4 * square + 2 * pairs


# ------------------------------------------------------------------ three layers


class GRULayer(nn.Module):
    """PyTorch's GRU, with as many outputs as inputs."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.gru = nn.GRU(d_model, d_model, batch_first=True)

    def forward(
        self, x: Float[Tensor, "batch time d_model"]
    ) -> Float[Tensor, "batch time d_model"]:
        return self.gru(x)[0]


class CausalConv(nn.Module):
    """`causal_conv1d` with a learned kernel and a learned bias."""

    def __init__(self, d_model: int, k: int, dilation: int = 1) -> None:
        super().__init__()
        bound = (k * d_model) ** -0.5  # the start of nn.Conv1d
        kernel = torch.empty(k, d_model, d_model).uniform_(-bound, bound)
        self.kernel = nn.Parameter(kernel)
        self.bias = nn.Parameter(torch.empty(d_model).uniform_(-bound, bound))
        self.dilation = dilation

    def forward(
        self, x: Float[Tensor, "... time d_model"]
    ) -> Float[Tensor, "... time d_model"]:
        return causal_conv1d(x, self.kernel, self.dilation) + self.bias


class CausalAttention(nn.Module):
    """Lesson 06's layer, in which no position sees a later one."""

    def __init__(
        self, d_model: int, n_heads: int, attend: Callable = attend, bias: bool = True
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads, attend, bias)

    def forward(
        self, x: Float[Tensor, "... time d_model"]
    ) -> Float[Tensor, "... time d_model"]:
        return self.attention(x, is_causal=True)


# ------------------------------------------------------------------ counting


PRODUCTS = "MmBackward", "AddmmBackward", "BmmBackward", "BaddbmmBackward"


def longest_chain(result: Tensor, kinds: tuple[str, ...] = ("",)) -> int:
    """How many operations in a row made `result`, each from what the one before gave.

    Read from the graph that PyTorch keeps for the backward pass, along the longest way
    back to a learned number. Only operations whose name begins with one of `kinds` are
    counted; by default all are. What happens inside a fused kernel is not in the graph.
    Raises ValueError when no operation has made `result`.
    """
    last = result.grad_fn
    if last is None:
        raise ValueError("no operation that PyTorch keeps has made this tensor")
    longest: dict[Any, int] = {}  # of each operation: the longest way to it
    waiting = [last]
    while waiting:
        operation = waiting[-1]
        earlier = [before for before, _ in operation.next_functions if before]
        unknown = [before for before in earlier if before not in longest]
        waiting += unknown  # these must be known first
        if not unknown:
            chain = max((longest[before] for before in earlier), default=0)
            longest[waiting.pop()] = chain + operation.name().startswith(kinds)
    return longest[last]


def products_in_order(outputs: Tensor) -> int:
    """The longest chain of matrix products that led to `outputs`.

    Each product of the chain needs the result of the one before it, so no computer can
    do them at the same time.
    """
    return longest_chain(outputs, PRODUCTS)


def bytes_kept(layer: nn.Module, x: Tensor) -> int:
    """How many bytes a forward pass keeps for the backward pass, parameters aside."""
    own = {p.untyped_storage().data_ptr() for p in layer.parameters()}
    kept: dict[int, int] = {}  # two tensors may share their memory

    def keep(tensor: Tensor) -> Tensor:
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in own:
            kept[memory.data_ptr()] = memory.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = layer(x)  # kept until all is counted: freed memory is used again
    del outputs
    return sum(kept.values())


def seconds_for_a_step(layer: nn.Module, x: Tensor, n_tries: int = 3) -> float:
    """The time of a forward and a backward pass: the shortest of some tries."""
    seconds = []
    for _ in range(n_tries):
        began = time.perf_counter()
        layer(x).sum().backward()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def gradient_reach(
    layer: nn.Module, x: Float[Tensor, "batch time d_model"]
) -> Float[Tensor, " time"]:
    """How strongly the last output depends on the input 0, 1, 2, … steps before it.

    The norm of the gradient of a random sum of the last output's numbers, as a mean
    over the batch.
    """
    leaf = x.clone().requires_grad_()
    last = layer(leaf)[:, -1]
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(last.shape, generator=generator, dtype=torch.float64).to(last)
    (gradient,) = torch.autograd.grad((last * factors).sum(), leaf)
    return gradient.norm(dim=-1).mean(dim=0).flip(0)


# ------------------------------------------------------------------ recall

N_KEYS, N_VALUES = 256, 16
N_STEPS, FARTHEST = 160, 128


class RecallBatch(NamedTuple):
    """At every step a pair of a key and a value is read, and a question is asked.

    The question is a key that was read some steps before; the answer is its value. All
    keys of a sequence differ. At step 0 nothing can be asked: there the question is the
    key itself, and nobody counts the answer.
    """

    keys: Int[Tensor, "batch steps"]
    values: Int[Tensor, "batch steps"]
    questions: Int[Tensor, "batch steps"]
    answers: Int[Tensor, "batch steps"]


def recall_batch(
    batch_size: int,
    generator: torch.Generator,
    distance: int | None = None,
    device: torch.device | str = "cpu",
) -> RecallBatch:
    """A random batch. `generator` is a CPU generator.

    The distances from question to pair are log-uniform between 1 and `FARTHEST`, as far
    back as there are steps: each doubling (1, 2 to 3, 4 to 7, …) is equally frequent.
    Or all of them are `distance`; where it leads to before step 0, the first pair is
    asked for.
    """
    shape = batch_size, N_STEPS
    keys = torch.rand(batch_size, N_KEYS, generator=generator).argsort(dim=-1)
    keys = keys[:, :N_STEPS]
    values = torch.randint(N_VALUES, shape, generator=generator)
    steps = torch.arange(N_STEPS)
    if distance is None:
        most = steps.clamp(1, FARTHEST)
        share = torch.rand(shape, generator=generator)
        back = torch.exp(share * torch.log(most + 0.999)).long()
    else:
        back = torch.full(shape, distance)
    asked = (steps - back).clamp(min=0)
    batch = keys, values, keys.gather(1, asked), values.gather(1, asked)
    return RecallBatch(*(tensor.to(device) for tensor in batch))


class Residual(nn.Module):
    """Layers, and a path around them: what goes in is added to what comes out."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        return x + self.layers(x)


D_MODEL = 64


def rnn_core() -> nn.Module:
    """One GRU layer."""
    return Residual(GRULayer(D_MODEL))


def rnn_core_with_open_gates() -> nn.Module:
    """The same, but its gates keep most of the state at the start: sigmoid(3) = .95."""
    layer = GRULayer(D_MODEL)
    biases = layer.gru.get_parameter("bias_hh_l0")  # reset, update, candidate
    with torch.no_grad():
        biases[D_MODEL : 2 * D_MODEL] = 3
    return Residual(layer)


def cnn_core() -> nn.Module:
    """Two convolutions of three matrices each: an output can read 5 inputs."""
    first, second = CausalConv(D_MODEL, k=3), CausalConv(D_MODEL, k=3)
    return Residual(first, nn.ReLU(), second)


def dilated_cnn_core(width: int = 35, n_layers: int = 8) -> nn.Module:
    """Eight narrow convolutions with dilations 1 to 128: an output can read 256 inputs.

    The width is chosen so that the core has as many parameters as the others.
    """
    layers = [
        Residual(CausalConv(width, k=2, dilation=2**i), nn.ReLU())
        for i in range(n_layers)
    ]
    return Residual(nn.Linear(D_MODEL, width), *layers, nn.Linear(width, D_MODEL))


def attention_core() -> nn.Module:
    """One attention layer with one head, then two linear layers for each vector."""
    attention = CausalAttention(D_MODEL, n_heads=1, bias=False)
    up, down = nn.Linear(D_MODEL, D_MODEL), nn.Linear(D_MODEL, D_MODEL)
    return nn.Sequential(Residual(attention), Residual(up, nn.ReLU(), down))


class RecallModel(nn.Module):
    """Answers the questions. Everything but the `core` is the same for all models."""

    def __init__(self, core: nn.Module) -> None:
        super().__init__()
        self.keys = nn.Embedding(N_KEYS, D_MODEL)
        self.values = nn.Embedding(N_VALUES, D_MODEL)
        self.questions = nn.Embedding(N_KEYS, D_MODEL)
        self.core = core
        self.norm = nn.LayerNorm(D_MODEL)
        self.answer = nn.Linear(D_MODEL, N_VALUES)

    def vectors(self, batch: RecallBatch) -> Float[Tensor, "batch steps d_model"]:
        """One vector for each step: those of key, value and question, added."""
        pairs = self.keys(batch.keys) + self.values(batch.values)
        return pairs + self.questions(batch.questions)

    def forward(self, batch: RecallBatch) -> Float[Tensor, "batch steps values"]:
        """The logits of the answers."""
        return self.answer(self.norm(self.core(self.vectors(batch))))


class CopyModel(RecallModel):
    """Sees the values and their positions, but neither keys nor questions.

    With one fixed distance, this is plain copying: say what stood so many steps before.
    """

    def vectors(self, batch: RecallBatch) -> Float[Tensor, "batch steps d_model"]:
        values = self.values(batch.values)
        return values + sinusoidal_encoding(values.shape[1], D_MODEL).to(values)


def recall_loss(model: nn.Module, batch: RecallBatch) -> Float[Tensor, ""]:
    """Nats per answer, over all steps but the first."""
    logits, answers = model(batch)[:, 1:], batch.answers[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), answers.flatten())


@torch.no_grad()
def recall_accuracy(model: nn.Module, distance: int, seed: int = 10**6) -> float:
    """The share of right answers at this distance: 64 new sequences, the last steps.

    Only steps from which every distance can be asked for are counted.
    """
    generator = torch.Generator().manual_seed(seed)
    device = next(model.parameters()).device
    batch = recall_batch(64, generator, distance, device)
    right = model(batch).argmax(dim=-1) == batch.answers
    return right[:, FARTHEST + 1 :].float().mean().item()


@one_thread()
def trained_model(
    make_core: Callable[[], nn.Module],
    seed: int,
    distance: int | None = None,
    *,
    model: Callable[[nn.Module], nn.Module] = RecallModel,
    steps: int = 200,
    learning_rate: float = 1.5e-2,
    device: torch.device | str = "cpu",
) -> nn.Module:
    """A model with this core, trained on all distances, or on one `distance` only."""
    torch.manual_seed(seed)
    made = model(make_core()).to(device)
    generator = torch.Generator().manual_seed(seed)

    def batches() -> Iterator[RecallBatch]:
        while True:
            yield recall_batch(16, generator, distance, device)

    train(made, batches(), recall_loss, steps=steps, learning_rate=learning_rate)
    return made
