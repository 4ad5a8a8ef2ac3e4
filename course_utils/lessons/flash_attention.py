"""Lesson 14: exact attention, tile by tile, that never stores the N × N matrix.

Milakov and Gimelshein 2018 (https://arxiv.org/abs/1805.02867) for the online softmax,
Dao et al. 2022 (https://arxiv.org/abs/2205.14135) for flash attention and its traffic,
Dao 2023 (https://arxiv.org/abs/2307.08691) for the order of the loops used here.

A **tile** is what one block of queries has to do with one block of keys: a piece of the
matrix of scores. Positions inside the matrix are slices: `rows` of queries, `columns`
of keys. Masks are boolean, True = may attend, as in lesson 05.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course_utils.lessons.masking import require_fit
from course_utils.lessons.multi_head import attend, attend_in_steps
from course_utils.lessons.transformer_block import storage

# ------------------------------------------------------------------ softmax in pieces


def blocks(n: int, size: int) -> Iterator[slice]:
    """Cuts positions 0 to n - 1 into slices of `size`; the last one may be shorter."""
    for first in range(0, n, size):
        yield slice(first, min(first + size, n))


def online_softmax(
    scores: Float[Tensor, "... keys"], block_k: int
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    """What the softmax of each row needs: its largest score, and a sum.

    Returns `row_max`, the largest score of each row, and `row_sum`, the sum of
    exp(score - row_max) over the row. The scores are read once, from left to right, in
    blocks of `block_k`, the last of which may be shorter: after a block none before it
    is read again. Nothing larger than a block of each row is ever computed. Scores may
    be -inf; a row of nothing but -inf has the sum 0. Right for scores of many thousands
    too. Any number of leading dimensions, including none; dtype and device follow the
    scores.
    """
    row_max = scores.new_full(scores.shape[:-1], -torch.inf)
    row_sum = torch.zeros_like(row_max)
    for columns in blocks(scores.shape[-1], block_k):
        block = scores[..., columns]
        new_max = torch.maximum(row_max, block.amax(dim=-1))
        # -inf - (-inf) is NaN: where all is hidden so far, subtract 0 instead.
        shift = new_max.masked_fill(new_max == -torch.inf, 0)
        rescale = torch.exp(row_max - shift)
        row_sum = row_sum * rescale + torch.exp(block - shift.unsqueeze(-1)).sum(dim=-1)
        row_max = new_max
    return row_max, row_sum


def merge_blocks(
    outputs_a: Float[Tensor, "... queries d_v"],
    log_sum_exp_a: Float[Tensor, "... queries"],
    outputs_b: Float[Tensor, "... queries d_v"],
    log_sum_exp_b: Float[Tensor, "... queries"],
) -> tuple[Float[Tensor, "... queries d_v"], Float[Tensor, "... queries"]]:
    """Merges attention to keys A and to keys B (none in both) into that to A and B.

    `outputs_a` is what the queries get from the keys A alone, and `log_sum_exp_a` the
    natural logarithm of the sum of exp(score) over A; the same for B. Returns what the
    queries get from A and B together: outputs and log-sum-exp. A query that sees none
    of the keys A has outputs 0 and log-sum-exp -inf there, and so has the result if it
    sees none of B either. Right for scores of many thousands too. Any number of
    leading dimensions, including none; dtype and device follow the inputs.
    """
    log_sum_exp = torch.logaddexp(log_sum_exp_a, log_sum_exp_b)
    shift = log_sum_exp.masked_fill(log_sum_exp == -torch.inf, 0)
    share_a = torch.exp(log_sum_exp_a - shift).unsqueeze(-1)
    share_b = torch.exp(log_sum_exp_b - shift).unsqueeze(-1)
    return share_a * outputs_a + share_b * outputs_b, log_sum_exp


# ------------------------------------------------------------------ which keys are seen


def causal_offset(n_queries: int, n_keys: int, align: str) -> int:
    """Query i sees keys 0 to i + offset.

    With align="end" the last query sees the last key, as in this course (lesson 05).
    With "start" the first query sees the first key, as in PyTorch's own `is_causal`.
    """
    if align not in ("end", "start"):
        raise ValueError(f'align must be "end" or "start", got {align!r}')
    return n_keys - n_queries if align == "end" else 0


class Visible(NamedTuple):
    """What the queries may attend to, asked tile by tile.

    `offset`: query i sees keys 0 to i + offset; None: there is no causal mask.
    """

    mask: Bool[Tensor, "..."] | None
    offset: int | None

    def nothing(self, rows: slice, columns: slice) -> bool:
        """Whether the causal mask hides the whole tile: its last row sees most."""
        return self.offset is not None and columns.start > rows.stop - 1 + self.offset

    def hide(
        self, scores: Float[Tensor, "... rows columns"], rows: slice, columns: slice
    ) -> Float[Tensor, "... rows columns"]:
        """The scores of this tile, and -inf where a query may not attend to a key."""
        if self.mask is not None:
            scores = scores.masked_fill(~self.mask[..., rows, columns], -torch.inf)
        if self.offset is not None and columns.stop - 1 > rows.start + self.offset:
            device = scores.device
            last = torch.arange(rows.start, rows.stop, device=device) + self.offset
            keys = torch.arange(columns.start, columns.stop, device=device)
            scores = scores.masked_fill(keys > last.unsqueeze(-1), -torch.inf)
        return scores


def what_is_visible(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    mask: Bool[Tensor, "..."] | None,
    is_causal: bool,
    align: str,
) -> Visible:
    """`mask` as a view of full size: no memory. ValueError where something is wrong."""
    shape = torch.Size((*queries.shape[:-1], keys.shape[-2]))
    offset = causal_offset(queries.shape[-2], keys.shape[-2], align)
    if mask is not None:
        require_fit(mask, shape)
        mask = mask.expand(shape)
    return Visible(mask, offset if is_causal else None)


# ------------------------------------------------------------ forward and backward


def tiled_attention(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    values: Float[Tensor, "... keys d_v"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
    align: str = "end",
    block_q: int = 256,
    block_k: int = 256,
) -> tuple[Float[Tensor, "... queries d_v"], Float[Tensor, "... queries"]]:
    """softmax(Q Kᵀ / √d_k) V in tiles: the outputs, and the log-sum-exp of each query.

    The log-sum-exp is the natural logarithm of the sum of exp(score) over the keys that
    the query sees. One block of `block_q` queries after the other meets all blocks of
    `block_k` keys; the last blocks may be shorter. No tensor has more numbers than the
    largest input, or than a tile of scores for each index of the leading dimensions.

    `mask` and `is_causal` hide keys, as `what_is_visible` describes (with its
    errors). A query that sees no key gets outputs 0 and log-sum-exp -inf. Half
    precision is computed in float32: the outputs have the dtype of the values, the
    log-sum-exp is float32 then. Right for scores of many thousands too. Any number of
    leading dimensions, including none; all inputs have the same ones. The device
    follows the inputs. Autograd through this function is not checked: see
    `tiled_attention_backward`.
    """
    wide = torch.promote_types(queries.dtype, torch.float32)
    visible = what_is_visible(queries, keys, mask, is_causal, align)
    n_queries, n_keys = queries.shape[-2], keys.shape[-2]
    scale = queries.shape[-1] ** -0.5
    outputs = values.new_empty(*queries.shape[:-1], values.shape[-1])
    log_sum_exp = queries.new_empty(queries.shape[:-1], dtype=wide)
    for rows in blocks(n_queries, block_q):
        q = queries[..., rows, :].to(wide) * scale
        row_max = q.new_full(q.shape[:-1], -torch.inf)
        row_sum = torch.zeros_like(row_max)
        acc = q.new_zeros(*q.shape[:-1], values.shape[-1])
        for columns in blocks(n_keys, block_k):
            if visible.nothing(rows, columns):
                continue
            k, v = keys[..., columns, :].to(wide), values[..., columns, :].to(wide)
            scores = visible.hide(q @ k.mT, rows, columns)
            new_max = torch.maximum(row_max, scores.amax(dim=-1))
            shift = new_max.masked_fill(new_max == -torch.inf, 0)
            rescale = torch.exp(row_max - shift)
            weights = torch.exp(scores - shift.unsqueeze(-1))
            row_sum = row_sum * rescale + weights.sum(dim=-1)
            acc = acc * rescale.unsqueeze(-1) + weights @ v
            row_max = new_max
        sums = row_sum.masked_fill(row_sum == 0, 1).unsqueeze(-1)
        outputs[..., rows, :] = acc / sums
        log_sum_exp[..., rows] = row_max + torch.log(row_sum)
    return outputs, log_sum_exp


def tiled_attention_backward(
    grad_outputs: Float[Tensor, "... queries d_v"],
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    values: Float[Tensor, "... keys d_v"],
    outputs: Float[Tensor, "... queries d_v"],
    log_sum_exp: Float[Tensor, "... queries"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
    align: str = "end",
    block_q: int = 256,
    block_k: int = 256,
) -> tuple[
    Float[Tensor, "... queries d_k"],
    Float[Tensor, "... keys d_k"],
    Float[Tensor, "... keys d_v"],
]:
    """The gradients of queries, keys and values, from that of the outputs, in tiles.

    `outputs` and `log_sum_exp` are what `tiled_attention` returned for these inputs and
    settings; the block sizes may be others. The weights are not stored: each tile of
    them is computed again from the scores and `log_sum_exp`. Memory is bounded as in
    `tiled_attention`. A query that sees no key has gradient 0, and gives none to keys
    and values. Half precision is computed in float32; each gradient has the dtype and
    the device of its input.
    """
    wide = torch.promote_types(queries.dtype, torch.float32)
    visible = what_is_visible(queries, keys, mask, is_causal, align)
    n_queries, n_keys = queries.shape[-2], keys.shape[-2]
    scale = queries.shape[-1] ** -0.5
    delta = (outputs.to(wide) * grad_outputs.to(wide)).sum(dim=-1, keepdim=True)
    # Where a query sees nothing, exp(score - inf) makes all its weights 0.
    log_sums = log_sum_exp.masked_fill(log_sum_exp == -torch.inf, torch.inf)
    log_sums = log_sums.unsqueeze(-1)

    def tile(rows: slice, columns: slice) -> tuple[Tensor, ...]:
        q, grad_o = queries[..., rows, :].to(wide), grad_outputs[..., rows, :].to(wide)
        k, v = keys[..., columns, :].to(wide), values[..., columns, :].to(wide)
        scores = visible.hide(q @ k.mT * scale, rows, columns)
        weights = torch.exp(scores - log_sums[..., rows, :])
        grad_scores = weights * (grad_o @ v.mT - delta[..., rows, :])
        return q, k, grad_o, weights, grad_scores

    grads = [torch.empty_like(x) for x in (queries, keys, values)]
    grad_queries, grad_keys, grad_values = grads
    for columns in blocks(n_keys, block_k):
        grad_k = torch.zeros_like(keys[..., columns, :], dtype=wide)
        grad_v = torch.zeros_like(values[..., columns, :], dtype=wide)
        for rows in blocks(n_queries, block_q):
            if not visible.nothing(rows, columns):
                q, _, grad_o, weights, grad_scores = tile(rows, columns)
                grad_v += weights.mT @ grad_o
                grad_k += grad_scores.mT @ q * scale
        grad_keys[..., columns, :] = grad_k
        grad_values[..., columns, :] = grad_v
    for rows in blocks(n_queries, block_q):
        grad_q = torch.zeros_like(queries[..., rows, :], dtype=wide)
        for columns in blocks(n_keys, block_k):
            if not visible.nothing(rows, columns):
                _, k, _, _, grad_scores = tile(rows, columns)
                grad_q += grad_scores @ k * scale
        grad_queries[..., rows, :] = grad_q
    return grad_queries, grad_keys, grad_values


class TiledAttention(torch.autograd.Function):
    """Joins forward and backward: what autograd calls in place of its own formulas."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        is_causal: bool,
    ) -> Tensor:
        outputs, log_sum_exp = tiled_attention(
            queries, keys, values, mask=mask, is_causal=is_causal
        )
        ctx.save_for_backward(queries, keys, values, outputs, log_sum_exp, mask)
        ctx.is_causal = is_causal
        return outputs

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # `create_graph=True` asks for it
            raise NotImplementedError("tiled attention has no second derivative")
        *saved, mask = ctx.saved_tensors
        grads = tiled_attention_backward(
            grad_outputs[0], *saved, mask=mask, is_causal=ctx.is_causal
        )
        return *grads, None, None


def attend_in_tiles(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    values: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
) -> Float[Tensor, "... queries d_v"]:
    """The outputs of `attend`, in tiles, forward and backward.

    A mask is read tile by tile and never copied. One with a size of 1, such as that of
    padding (batch, 1, 1, keys), stays small; one of full size is N² by itself. A second
    derivative is refused with an error.
    """
    return TiledAttention.apply(queries, keys, values, mask, is_causal)


# ------------------------------------------------------------------ traffic


def memory_traffic(
    n_queries: int, n_keys: int, d_k: int, d_v: int, block_q: int
) -> int:
    """How many numbers one tiled forward pass moves to and from slow memory, as an int.

    One head, no mask. A tile and all that belongs to one block of queries is in fast
    memory. Each block of at most `block_q` queries is loaded once. While it is there,
    all keys and all values are loaded once, block by block. Then its outputs and its
    log-sum-exp, one number a query, are stored once.
    """
    n_blocks = -(-n_queries // block_q)  # rounded up
    loaded = n_queries * d_k + n_blocks * n_keys * (d_k + d_v)
    return loaded + n_queries * (d_v + 1)


class TrafficCounter(TorchDispatchMode):
    """Writes down every tensor that PyTorch's operations read or write in `with`."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: list[Tensor] = []  # kept, so that no place is used twice

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        results = func(*args, **(kwargs or {}))
        inputs, outputs = (
            [x for x in tree_leaves(part) if isinstance(x, Tensor)]
            for part in ((args, kwargs), results)
        )
        places = {storage(x) for x in inputs}
        only_a_view = not func._schema.is_mutable and all(
            storage(x) in places for x in outputs
        )
        only_made = "empty" in func.overloadpacket.__name__
        if not only_made and not only_a_view:
            if func.overloadpacket.__name__ == "copy_":
                inputs = inputs[1:]  # the first one is only written
            self.moves += inputs + outputs
        return results


def counted_traffic(
    function: Callable[..., Tensor | tuple[Tensor, ...]],
    *inputs: Tensor,
    fast_numbers: int,
) -> int:
    """How many numbers `function(*inputs)` moves to and from slow memory.

    Inputs and results are in slow memory, and so is every tensor of more than
    `fast_numbers` numbers; whether all others fit together is not looked at. Every
    operation loads what it reads from slow memory, and stores what it writes there.
    """
    with TrafficCounter() as counter:
        results = function(*inputs)
    slow = {storage(x) for x in (*inputs, *tree_leaves(results))}
    slow |= {storage(x) for x in counter.moves if x.numel() > fast_numbers}
    return sum(x.numel() for x in counter.moves if storage(x) in slow)


# ------------------------------------------------------------------ memory and time


def attend_in_reused(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    values: Float[Tensor, "... keys d_v"],
    scores: Float[Tensor, "... queries keys"],
    weights: Float[Tensor, "... queries keys"],
) -> Float[Tensor, "... queries d_v"]:
    """The steps of plain attention, written into two matrices that are there already.

    Forward only. The two are overwritten.
    """
    torch.matmul(queries * queries.shape[-1] ** -0.5, keys.mT, out=scores)
    torch.softmax(scores, dim=-1, out=weights)
    return weights @ values


def attend_forward_in_tiles(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    values: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
) -> Float[Tensor, "... queries d_v"]:
    """Tiles forward; backward is left to PyTorch, which keeps what every tile needs."""
    return tiled_attention(queries, keys, values, mask=mask, is_causal=is_causal)[0]


WAYS = {
    "plain": attend_in_steps,
    "tiled": attend_in_tiles,
    "tiled, PyTorch's backward": attend_forward_in_tiles,
    "PyTorch's fused": attend,
}

_MEASURE = """
import sys
import time
import torch
from course_utils.lessons import flash_attention, multi_head

attend = flash_attention.WAYS[sys.argv[1]]
d_k, *sizes = map(int, sys.argv[2:])
torch.set_num_threads(1)
before = None
for n in sizes:
    vectors = [torch.randn(1, 1, n, d_k, requires_grad=True) for _ in range(3)]
    began = time.process_time()
    attend(*vectors).sum().backward()
    seconds = time.process_time() - began
    before = before or multi_head.peak_memory()
    print(multi_head.peak_memory() - before, seconds)
"""


class Use(NamedTuple):
    """What an attention used: bytes above a first short run, and processor seconds."""

    n_bytes: int
    seconds: float


def in_new_process(program: str, *arguments: str | int, **environment: str) -> str:
    """What a Python program prints. In a new process, no memory is there already."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    env = {**os.environ, **environment}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return run.stdout


def measured_use(
    way: str, n_tokens: Sequence[int], d_k: int = 128, first: int = 256
) -> list[Use]:
    """Forward and backward over N tokens, one head, float32, in a new process.

    `way` is one of `WAYS`. `n_tokens` are rising numbers N, because the peak of a
    process never falls. A first run, over `first` tokens, loads what is loaded only
    once; bytes are counted from there. One thread.
    """
    # Linux then gives every large block back when it is freed; others do it anyway
    environment = {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    lines = in_new_process(
        _MEASURE, way, d_k, first, *n_tokens, **environment
    ).splitlines()
    uses = [line.split() for line in lines[1:]]
    return [Use(int(n_bytes), float(seconds)) for n_bytes, seconds in uses]


@torch.no_grad()
def forward_seconds(n_tokens: int, tile_sizes: Sequence[int]) -> dict[str, float]:
    """The median time of each way to do the forward pass of 8 heads, all in turn.

    Beside them: the time to fill one matrix of weights with zeros.
    """
    q, k, v = torch.randn(3, 1, 8, n_tokens, 32)
    shape = (1, 8, n_tokens, n_tokens)
    scores, weights = torch.zeros(shape), torch.zeros(shape)
    calls: dict[str, Callable[[], Any]] = {
        "fused": partial(attend, q, k, v),
        "our steps": partial(attend_in_steps, q, k, v),
        "steps, reused memory": partial(attend_in_reused, q, k, v, scores, weights),
        "fill a new matrix": lambda: torch.empty(shape).zero_(),
        "fill an old matrix": scores.zero_,
    }
    for size in tile_sizes:
        tiled = partial(tiled_attention, block_q=size, block_k=size)
        calls[f"tiles of {size:,}"] = partial(tiled, q, k, v)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(6):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - began)
    return {name: median(of_one[2:]) for name, of_one in times.items()}


_TIME = """
import json
import sys
import torch
from course_utils.lessons import flash_attention

torch.set_num_threads(1)
n_tokens, *tile_sizes = map(int, sys.argv[1:])
print(json.dumps(flash_attention.forward_seconds(n_tokens, tile_sizes)))
"""


def measured_seconds(n_tokens: int, tile_sizes: Sequence[int]) -> dict[str, float]:
    """`forward_seconds` in a new process, with one thread."""
    return json.loads(in_new_process(_TIME, n_tokens, *tile_sizes))
