"""Lesson 15: flash attention as a GPU kernel, forward and backward, by hand in Triton.

Dao 2023 (https://arxiv.org/abs/2307.08691) for the algorithm, Tillet et al. 2019
(https://doi.org/10.1145/3315508.3329973) for Triton.

Layout: queries are (batch, heads, queries, d), keys and values (batch, kv_heads, keys,
d); `heads` is a multiple of `kv_heads`. A tensor in a kernel is a pair, its pointer and
its strides (batch, heads, rows, columns): any layout in memory is right.

Masks are one number: the query in row i sees the keys up to i + `offset`.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_utils.lessons.flash_attention import causal_offset, tiled_attention
from course_utils.triton_or_stub import HAS_TRITON, INTERPRETED, tl, triton

LOG2_OF_E = tl.constexpr(1.4426950408889634)
LN_OF_2 = tl.constexpr(0.6931471805599453)

# ------------------------------------------------------------------ warm-ups


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x + y, for vectors of `n` numbers that lie one after another in memory.

    Program number i does the BLOCK numbers from i * BLOCK on. The last block may be
    longer than what is left: nothing behind the n numbers is read or written.
    """
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    x = tl.load(x_ptr + places, mask=inside)
    y = tl.load(y_ptr + places, mask=inside)
    tl.store(out_ptr + places, x + y, mask=inside)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, x_stride, out_stride, n, BLOCK: tl.constexpr):
    """Softmax of each row of a matrix; program number i does row i.

    A row has `n` numbers, side by side, and fits into a block: n <= BLOCK, a power of
    two. Row i of the input begins at x_ptr + i * x_stride, of the result at out_ptr + i
    * out_stride; i * x_stride and i * out_stride may be larger than what 32 bits hold.
    Computed in float32, also where the numbers are float16 or large; nothing behind a
    row is read or written.
    """
    row = tl.cast(tl.program_id(0), tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=-float("inf"))
    x = x.to(tl.float32)
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * out_stride + columns, powers / tl.sum(powers), mask=inside)


@triton.jit
def dot(a, b):
    """The product of two blocks, summed in float32.

    "ieee": for float32, tensor cores would keep 10 bits of each number's fraction only.
    """
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def matmul_kernel(a, b, out, n_rows, n_inner, n_columns, BLOCK: tl.constexpr):
    """out = a @ b. Program (i, j) does the block in row i and column j of blocks.

    `a`, `b` and `out` are pairs: a pointer, and the strides of rows and columns.
    """
    (a_ptr, a_strides), (b_ptr, b_strides), (out_ptr, out_strides) = a, b, out
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n_inner, BLOCK):
        across = start + tl.arange(0, BLOCK)[None, :]
        down = start + tl.arange(0, BLOCK)[:, None]
        a_places = a_ptr + rows * a_strides[0] + across * a_strides[1]
        b_places = b_ptr + down * b_strides[0] + columns * b_strides[1]
        left = tl.load(a_places, mask=(rows < n_rows) & (across < n_inner), other=0.0)
        right = tl.load(
            b_places, mask=(down < n_inner) & (columns < n_columns), other=0.0
        )
        acc += dot(left, right)
    places = out_ptr + rows * out_strides[0] + columns * out_strides[1]
    tl.store(places, acc, mask=(rows < n_rows) & (columns < n_columns))


def add(
    kernel: Any, x: Float[Tensor, " n"], y: Float[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """x + y by `kernel`, one program for every 128 numbers."""
    out = torch.empty_like(x)
    kernel[(triton.cdiv(len(x), 128),)](x, y, out, len(x), BLOCK=128)
    return out


def softmax(kernel: Any, x: Float[Tensor, "rows n"]) -> Float[Tensor, "rows n"]:
    """The softmax of each row by `kernel`, one program a row."""
    n_rows, n = x.shape
    out = x.new_empty(x.shape)
    block = triton.next_power_of_2(n)
    kernel[(n_rows,)](x, out, x.stride(0), out.stride(0), n, BLOCK=block)
    return out


def matmul(
    a: Float[Tensor, "rows inner"], b: Float[Tensor, "inner columns"]
) -> Float[Tensor, "rows columns"]:
    """a @ b by `matmul_kernel`, one program for every 32 rows and 32 columns."""
    (n_rows, n_inner), n_columns = a.shape, b.shape[1]
    out = a.new_empty(n_rows, n_columns)
    sizes = n_rows, n_inner, n_columns
    grid = triton.cdiv(n_rows, 32), triton.cdiv(n_columns, 32)
    matmul_kernel[grid](*map(pair, (a, b, out)), *sizes, BLOCK=32)
    return out


def pair(tensor: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """A tensor as a kernel takes it; PyTorch knows its strides, a kernel does not."""
    return tensor, tensor.stride()


# ------------------------------------------------------------------ blocks in memory


@triton.jit
def matrix_of(tensor, batch, head):
    """The matrix of one head: where it begins, its row stride and its column stride.

    In 64 bits: in a large tensor that place does not fit into 32.
    """
    ptr, strides = tensor
    ptr += tl.cast(batch, tl.int64) * strides[0] + tl.cast(head, tl.int64) * strides[1]
    return ptr, strides[2], strides[3]


@triton.jit
def load_rows(
    matrix, start, n_rows, ROWS: tl.constexpr, D: tl.constexpr, TAIL: tl.constexpr
):
    """The rows from `start` on: (ROWS, D). If TAIL, rows from `n_rows` on are zeros."""
    ptr, row_stride, column_stride = matrix
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, D)[None, :]
    first = ptr + tl.cast(start, tl.int64) * row_stride
    places = first + rows * row_stride + columns * column_stride
    if TAIL:
        return tl.load(places, mask=start + rows < n_rows, other=0.0)
    else:
        return tl.load(places)


@triton.jit
def store_rows(matrix, start, n_rows, block, ROWS: tl.constexpr, D: tl.constexpr):
    """Writes `block` to the rows from `start` on, but to none from `n_rows` on."""
    ptr, row_stride, column_stride = matrix
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, D)[None, :]
    first = ptr + tl.cast(start, tl.int64) * row_stride
    places = first + rows * row_stride + columns * column_stride
    tl.store(places, block.to(ptr.dtype.element_ty), mask=start + rows < n_rows)


@triton.jit
def vector_of(tensor, batch, head):
    """Where the log-sum-exps, or deltas, of one head begin."""
    ptr, strides = tensor
    ptr += tl.cast(batch, tl.int64) * strides[0]
    return ptr + tl.cast(head, tl.int64) * strides[1]


@triton.jit
def visible_keys(rows, offset, n_keys):
    """How many keys each query sees: row i sees the keys 0 to i + offset."""
    return tl.minimum(tl.maximum(rows + offset + 1, 0), n_keys)


# ------------------------------------------------------------------ forward


@triton.jit
def flash_forward_inner(
    acc, row_sum, row_max, queries, k, v, first, last, n_keys, n_visible, log2_scale,
    BLOCK_K: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Goes through the keys from `first` to `last`, a block of BLOCK_K after another.

    `acc` (BLOCK_Q, D), `row_sum` and `row_max` (BLOCK_Q) are what earlier blocks gave;
    they are returned, in this order, as they are after the last block. `row_max` begins
    with -inf and holds the largest score so far. `row_sum` sums 2 ** (score - row_max),
    and `acc` sums the values with the same weights. A score is query · key *
    log2_scale.

    `queries` (BLOCK_Q, D) is a block; `k` and `v` are the matrices of this head, for
    `load_rows`. If MASKED, query i sees the first n_visible[i] keys (none, where that
    is 0), and a block may reach past `n_keys`, where nothing may be read. If not, every
    query sees every key, and all blocks are full. All sums are float32; the weights are
    rounded to the dtype of the values for their product.
    """
    for start in range(first, last, BLOCK_K):
        keys = load_rows(k, start, n_keys, BLOCK_K, D, MASKED)
        values = load_rows(v, start, n_keys, BLOCK_K, D, MASKED)
        scores = dot(queries, tl.trans(keys)) * log2_scale
        if MASKED:
            visible = start + tl.arange(0, BLOCK_K)[None, :] < n_visible[:, None]
            scores = tl.where(visible, scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        shift = tl.where(new_max == -float("inf"), 0.0, new_max)  # no -inf - -inf
        weights = tl.exp2(scores - shift[:, None])
        rescale = tl.exp2(row_max - shift)
        row_sum = row_sum * rescale + tl.sum(weights, axis=1)
        acc = acc * rescale[:, None]
        acc += dot(weights.to(values.dtype), values)
        row_max = new_max
    return acc, row_sum, row_max


@triton.jit
def flash_forward_kernel(
    q, k, v, o, lse, n_queries, n_keys, group, offset, scale, INNER: tl.constexpr,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program (i, head, batch) writes block i of the outputs and their log-sum-exp."""
    start, head, batch = tl.program_id(0) * BLOCK_Q, tl.program_id(1), tl.program_id(2)
    rows = start + tl.arange(0, BLOCK_Q)
    queries = load_rows(matrix_of(q, batch, head), start, n_queries, BLOCK_Q, D, True)
    k, v = matrix_of(k, batch, head // group), matrix_of(v, batch, head // group)
    # All queries see all keys before `full`; none sees a key from `last` on.
    full = visible_keys(start, offset, n_keys) // BLOCK_K * BLOCK_K
    last = visible_keys(start + BLOCK_Q - 1, offset, n_keys)
    n_visible, log2_scale = visible_keys(rows, offset, n_keys), scale * LOG2_OF_E

    acc = tl.zeros((BLOCK_Q, D), tl.float32)
    row_sum = tl.zeros((BLOCK_Q,), tl.float32)
    row_max = tl.full((BLOCK_Q,), -float("inf"), tl.float32)
    acc, row_sum, row_max = INNER(
        acc, row_sum, row_max, queries, k, v, 0, full, n_keys, n_visible, log2_scale,
        BLOCK_K, D, False,
    )  # fmt: skip
    acc, row_sum, row_max = INNER(
        acc, row_sum, row_max, queries, k, v, full, last, n_keys, n_visible, log2_scale,
        BLOCK_K, D, True,
    )  # fmt: skip

    row_sum = tl.where(row_sum == 0.0, 1.0, row_sum)  # a query that sees nothing
    log_sum_exp = (row_max + tl.log2(row_sum)) * LN_OF_2  # -inf there
    outputs = acc / row_sum[:, None]
    store_rows(matrix_of(o, batch, head), start, n_queries, outputs, BLOCK_Q, D)
    tl.store(vector_of(lse, batch, head) + rows, log_sum_exp, mask=rows < n_queries)


# ------------------------------------------------------------------ backward


@triton.jit
def flash_delta_kernel(o, do, delta, n_queries, D: tl.constexpr, BLOCK_Q: tl.constexpr):
    """Program (i, head, batch) writes delta, the sums of outputs * grad_outputs."""
    start, head, batch = tl.program_id(0) * BLOCK_Q, tl.program_id(1), tl.program_id(2)
    rows = start + tl.arange(0, BLOCK_Q)
    outputs = load_rows(matrix_of(o, batch, head), start, n_queries, BLOCK_Q, D, True)
    grad_outputs = load_rows(
        matrix_of(do, batch, head), start, n_queries, BLOCK_Q, D, True
    )
    sums = tl.sum(outputs.to(tl.float32) * grad_outputs.to(tl.float32), axis=1)
    tl.store(vector_of(delta, batch, head) + rows, sums, mask=rows < n_queries)


@triton.jit
def load_log_sum_exp(vector, rows, n_queries):
    """To base 2; +inf, which makes all weights 0, in rows that see nothing."""
    log_sum_exp = tl.load(vector + rows, mask=rows < n_queries, other=-float("inf"))
    empty = log_sum_exp == -float("inf")
    return tl.where(empty, float("inf"), log_sum_exp * LOG2_OF_E)


@triton.jit
def flash_dkv_inner(
    grad_keys, grad_values, keys, values, columns, q, do, lse, delta,
    first, last, n_queries, n_keys, offset, log2_scale,
    BLOCK_Q: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds what the queries of one head give, from `first` to `last`."""
    for start in range(first, last, BLOCK_Q):
        rows = start + tl.arange(0, BLOCK_Q)
        queries = load_rows(q, start, n_queries, BLOCK_Q, D, True)
        log_sum_exp = load_log_sum_exp(lse, rows, n_queries)
        scores = dot(keys, tl.trans(queries)) * log2_scale
        if MASKED:
            visible = columns[:, None] < visible_keys(rows, offset, n_keys)[None, :]
            scores = tl.where(visible, scores, -float("inf"))
        weights = tl.exp2(scores - log_sum_exp[None, :])
        grad_outputs = load_rows(do, start, n_queries, BLOCK_Q, D, True)
        grad_values += dot(weights.to(queries.dtype), grad_outputs)
        grad_weights = dot(values, tl.trans(grad_outputs))
        deltas = tl.load(delta + rows, mask=rows < n_queries, other=0.0)
        grad_scores = weights * (grad_weights - deltas[None, :])
        grad_keys += dot(grad_scores.to(queries.dtype), queries)
    return grad_keys, grad_values


@triton.jit
def flash_dkv_kernel(
    q, k, v, do, lse, delta, dk, dv, n_queries, n_keys, group, offset, scale,
    INNER: tl.constexpr, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program (i, kv_head, batch) writes block i of the gradients of keys and values.

    It sums over the heads that share these keys, so that no two programs write to the
    same place.
    """
    start, kv_head = tl.program_id(0) * BLOCK_K, tl.program_id(1)
    batch = tl.program_id(2)
    columns = start + tl.arange(0, BLOCK_K)
    keys = load_rows(matrix_of(k, batch, kv_head), start, n_keys, BLOCK_K, D, True)
    values = load_rows(matrix_of(v, batch, kv_head), start, n_keys, BLOCK_K, D, True)
    # No query before `first` sees a key of this block; from `full` on, all see all.
    first = tl.maximum(start - offset, 0) // BLOCK_Q * BLOCK_Q
    full = tl.cdiv(tl.maximum(start + BLOCK_K - 1 - offset, 0), BLOCK_Q) * BLOCK_Q
    full = tl.minimum(full, n_queries)
    log2_scale = scale * LOG2_OF_E

    grad_keys = tl.zeros((BLOCK_K, D), tl.float32)
    grad_values = tl.zeros((BLOCK_K, D), tl.float32)
    for head in range(kv_head * group, (kv_head + 1) * group):
        qs, dos = matrix_of(q, batch, head), matrix_of(do, batch, head)
        lses, deltas = vector_of(lse, batch, head), vector_of(delta, batch, head)
        grad_keys, grad_values = INNER(
            grad_keys, grad_values, keys, values, columns, qs, dos, lses, deltas,
            first, full, n_queries, n_keys, offset, log2_scale, BLOCK_Q, D, True,
        )  # fmt: skip
        grad_keys, grad_values = INNER(
            grad_keys, grad_values, keys, values, columns, qs, dos, lses, deltas,
            full, n_queries, n_queries, n_keys, offset, log2_scale, BLOCK_Q, D, False,
        )  # fmt: skip
    dk, dv = matrix_of(dk, batch, kv_head), matrix_of(dv, batch, kv_head)
    store_rows(dk, start, n_keys, grad_keys * scale, BLOCK_K, D)
    store_rows(dv, start, n_keys, grad_values, BLOCK_K, D)


@triton.jit
def flash_dq_inner(
    grad_queries, queries, grad_outputs, log_sum_exp, delta, k, v, first, last, n_keys,
    n_visible, log2_scale,
    BLOCK_K: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds to `grad_queries` what the keys from `first` to `last` give.

    It takes a block of BLOCK_K keys after another, with the scores and the mask of the
    forward pass; a weight is 2 ** (score - log_sum_exp). What a key gives to a query is
    the key times the gradient of their score, which is weight * (gradient of the weight
    - delta). The gradient of the weight is grad_output · value. (The kernel that calls
    this multiplies what is returned by the scale, once.)

    `grad_queries`, `queries` and `grad_outputs` are (BLOCK_Q, D), `log_sum_exp` (to
    base 2; +inf where a query sees nothing) and `delta` (BLOCK_Q). `k`, `v`, and MASKED
    with `n_visible` and `n_keys`, are as in `flash_forward_inner`. `grad_queries` is
    float32; the gradients of the scores are rounded to the dtype of the keys for their
    product.
    """
    for start in range(first, last, BLOCK_K):
        keys = load_rows(k, start, n_keys, BLOCK_K, D, MASKED)
        values = load_rows(v, start, n_keys, BLOCK_K, D, MASKED)
        scores = dot(queries, tl.trans(keys)) * log2_scale
        if MASKED:
            visible = start + tl.arange(0, BLOCK_K)[None, :] < n_visible[:, None]
            scores = tl.where(visible, scores, -float("inf"))
        weights = tl.exp2(scores - log_sum_exp[:, None])
        grad_weights = dot(grad_outputs, tl.trans(values))
        grad_scores = weights * (grad_weights - delta[:, None])
        grad_queries += dot(grad_scores.to(keys.dtype), keys)
    return grad_queries


@triton.jit
def flash_dq_kernel(
    q, k, v, do, lse, delta, dq, n_queries, n_keys, group, offset, scale,
    INNER: tl.constexpr, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program (i, head, batch) writes block i of the gradients of the queries."""
    start, head, batch = tl.program_id(0) * BLOCK_Q, tl.program_id(1), tl.program_id(2)
    rows = start + tl.arange(0, BLOCK_Q)
    queries = load_rows(matrix_of(q, batch, head), start, n_queries, BLOCK_Q, D, True)
    grad_outputs = load_rows(
        matrix_of(do, batch, head), start, n_queries, BLOCK_Q, D, True
    )
    log_sum_exp = load_log_sum_exp(vector_of(lse, batch, head), rows, n_queries)
    delta = vector_of(delta, batch, head)
    deltas = tl.load(delta + rows, mask=rows < n_queries, other=0.0)
    k, v = matrix_of(k, batch, head // group), matrix_of(v, batch, head // group)
    full = visible_keys(start, offset, n_keys) // BLOCK_K * BLOCK_K
    last = visible_keys(start + BLOCK_Q - 1, offset, n_keys)
    n_visible, log2_scale = visible_keys(rows, offset, n_keys), scale * LOG2_OF_E

    grad_queries = tl.zeros((BLOCK_Q, D), tl.float32)
    grad_queries = INNER(
        grad_queries, queries, grad_outputs, log_sum_exp, deltas, k, v, 0, full,
        n_keys, n_visible, log2_scale, BLOCK_K, D, False,
    )  # fmt: skip
    grad_queries = INNER(
        grad_queries, queries, grad_outputs, log_sum_exp, deltas, k, v, full, last,
        n_keys, n_visible, log2_scale, BLOCK_K, D, True,
    )  # fmt: skip
    dq = matrix_of(dq, batch, head)
    store_rows(dq, start, n_queries, grad_queries * scale, BLOCK_Q, D)


# ------------------------------------------------------------------ tiles


class Tile(NamedTuple):
    """How one kernel is cut: its blocks, warps of 32 threads, and loads in flight.

    `shared` is how many bytes of a multiprocessor's shared memory a program needs.
    """

    block_q: int
    block_k: int
    warps: int
    stages: int
    shared: int = 0


# Family of GPUs, head size and kernel. "dkv" gives the gradients of keys and values.
TILES: dict[tuple[str, int, str], Tile] = {
    ("fma", 16, "forward"): Tile(64, 32, 8, 1, 14_592),
    ("fma", 16, "dkv"): Tile(32, 16, 8, 1, 8_192),
    ("fma", 16, "dq"): Tile(64, 32, 8, 1, 18_432),
    ("fma", 32, "forward"): Tile(64, 32, 8, 1, 20_480),
    ("fma", 32, "dkv"): Tile(32, 16, 8, 1, 14_336),
    ("fma", 32, "dq"): Tile(64, 32, 8, 1, 28_672),
    ("fma", 64, "forward"): Tile(64, 32, 8, 1, 33_024),
    ("fma", 64, "dkv"): Tile(32, 16, 8, 1, 26_624),
    ("fma", 64, "dq"): Tile(32, 32, 8, 1, 32_768),
    ("fma", 128, "forward"): Tile(32, 16, 8, 1, 32_768),
    ("fma", 128, "dkv"): Tile(16, 16, 8, 1, 33_792),
    ("fma", 128, "dq"): Tile(16, 16, 8, 1, 32_768),
    ("sm_80", 16, "forward"): Tile(128, 64, 4, 3, 12_288),
    ("sm_80", 16, "dkv"): Tile(64, 128, 8, 2, 12_800),
    ("sm_80", 16, "dq"): Tile(128, 64, 8, 3, 16_384),
    ("sm_80", 32, "forward"): Tile(128, 64, 4, 3, 24_576),
    ("sm_80", 32, "dkv"): Tile(64, 128, 8, 2, 25_088),
    ("sm_80", 32, "dq"): Tile(128, 64, 8, 3, 32_768),
    ("sm_80", 64, "forward"): Tile(128, 64, 4, 3, 49_152),
    ("sm_80", 64, "dkv"): Tile(64, 128, 8, 2, 49_664),
    ("sm_80", 64, "dq"): Tile(128, 64, 8, 3, 65_536),
    ("sm_80", 128, "forward"): Tile(128, 64, 8, 3, 98_304),
    ("sm_80", 128, "dkv"): Tile(64, 64, 8, 2, 74_240),
    ("sm_80", 128, "dq"): Tile(64, 64, 8, 2, 73_728),
    ("sm_90", 16, "forward"): Tile(128, 64, 4, 3, 16_384),
    ("sm_90", 16, "dkv"): Tile(64, 128, 8, 2, 16_896),
    ("sm_90", 16, "dq"): Tile(128, 64, 8, 3, 20_480),
    ("sm_90", 32, "forward"): Tile(128, 64, 4, 3, 32_768),
    ("sm_90", 32, "dkv"): Tile(64, 128, 8, 2, 33_280),
    ("sm_90", 32, "dq"): Tile(128, 64, 8, 3, 40_960),
    ("sm_90", 64, "forward"): Tile(128, 64, 4, 3, 65_536),
    ("sm_90", 64, "dkv"): Tile(64, 128, 8, 2, 66_048),
    ("sm_90", 64, "dq"): Tile(128, 64, 8, 3, 81_920),
    ("sm_90", 128, "forward"): Tile(128, 64, 8, 3, 131_072),
    ("sm_90", 128, "dkv"): Tile(32, 128, 8, 2, 98_560),
    ("sm_90", 128, "dq"): Tile(128, 64, 8, 2, 131_072),
}
# Blocks for the interpreter, whose time is that of its steps, however large they are.
INTERPRETER_TILE = Tile(32, 64, 1, 1)


def families(capability: int, dtype: torch.dtype) -> tuple[str, ...]:
    """Rows of TILES for a GPU, the fastest first. 75 stands for compute capability 7.5.

    "fma" is for kernels without tensor cores: older GPUs, and float32 everywhere.
    """
    if capability < 80 or dtype == torch.float32:
        return ("fma",)
    return (
        ("sm_90", "sm_80", "fma") if capability // 10 in (9, 10) else ("sm_80", "fma")
    )


def tile_for(kernel: str, d: int, dtype: torch.dtype) -> Tile:
    """The first tile of TILES that fits into the shared memory of the GPU in use."""
    if INTERPRETED or not HAS_TRITON:
        return INTERPRETER_TILE
    driver = triton.runtime.driver.active
    properties = driver.utils.get_device_properties(driver.get_current_device())
    known = families(driver.get_current_target().arch, dtype)
    tiles = [TILES[family, d, kernel] for family in known]
    limit = properties["max_shared_mem"]
    fitting = [tile for tile in tiles if tile.shared <= limit]
    if not fitting:
        raise RuntimeError(f"no tile fits into {limit} bytes of shared memory: {tiles}")
    return fitting[0]


# ------------------------------------------------------------------ what a model calls


def flash_forward(
    inner: Any,
    q: Float[Tensor, "batch heads queries d"],
    k: Float[Tensor, "batch kv_heads keys d"],
    v: Float[Tensor, "batch kv_heads keys d"],
    offset: int,
) -> tuple[
    Float[Tensor, "batch heads queries d"], Float[Tensor, "batch heads queries"]
]:
    """Outputs and log-sum-exp (natural, float32), by the helper `inner`."""
    batch, heads, n_queries, d = q.shape
    o, lse = q.new_empty(q.shape), q.new_empty(q.shape[:-1], dtype=torch.float32)
    tile = tile_for("forward", d, q.dtype)
    grid = triton.cdiv(n_queries, tile.block_q), heads, batch
    flash_forward_kernel[grid](
        *map(pair, (q, k, v, o, lse)), *lengths(q, k), offset, 1 / math.sqrt(d),
        INNER=inner, D=d, **launch(tile),
    )  # fmt: skip
    return o, lse


def flash_delta(
    o: Float[Tensor, "batch heads queries d"],
    do: Float[Tensor, "batch heads queries d"],
) -> Float[Tensor, "batch heads queries"]:
    """The sum of outputs * grad_outputs of each query, in float32."""
    batch, heads, n_queries, d = o.shape
    delta = o.new_empty(o.shape[:-1], dtype=torch.float32)
    grid = triton.cdiv(n_queries, 32), heads, batch
    flash_delta_kernel[grid](*map(pair, (o, do, delta)), n_queries, D=d, BLOCK_Q=32)
    return delta


def flash_dkv(
    inner: Any,
    q: Float[Tensor, "batch heads queries d"],
    k: Float[Tensor, "batch kv_heads keys d"],
    v: Float[Tensor, "batch kv_heads keys d"],
    do: Float[Tensor, "batch heads queries d"],
    lse: Float[Tensor, "batch heads queries"],
    delta: Float[Tensor, "batch heads queries"],
    offset: int,
) -> tuple[
    Float[Tensor, "batch kv_heads keys d"], Float[Tensor, "batch kv_heads keys d"]
]:
    """The gradients of keys and values, by the helper `inner`."""
    batch, kv_heads, n_keys, d = k.shape
    dk, dv = k.new_empty(k.shape), v.new_empty(v.shape)
    tile = tile_for("dkv", d, q.dtype)
    grid = triton.cdiv(n_keys, tile.block_k), kv_heads, batch
    flash_dkv_kernel[grid](
        *map(pair, (q, k, v, do, lse, delta, dk, dv)), *lengths(q, k), offset,
        1 / math.sqrt(d), INNER=inner, D=d, **launch(tile),
    )  # fmt: skip
    return dk, dv


def flash_dq(
    inner: Any,
    q: Float[Tensor, "batch heads queries d"],
    k: Float[Tensor, "batch kv_heads keys d"],
    v: Float[Tensor, "batch kv_heads keys d"],
    do: Float[Tensor, "batch heads queries d"],
    lse: Float[Tensor, "batch heads queries"],
    delta: Float[Tensor, "batch heads queries"],
    offset: int,
) -> Float[Tensor, "batch heads queries d"]:
    """The gradient of the queries, by the helper `inner`."""
    batch, heads, n_queries, d = q.shape
    dq = q.new_empty(q.shape)
    tile = tile_for("dq", d, q.dtype)
    grid = triton.cdiv(n_queries, tile.block_q), heads, batch
    flash_dq_kernel[grid](
        *map(pair, (q, k, v, do, lse, delta, dq)), *lengths(q, k), offset,
        1 / math.sqrt(d), INNER=inner, D=d, **launch(tile),
    )  # fmt: skip
    return dq


def lengths(q: Tensor, k: Tensor) -> tuple[int, int, int]:
    """How many queries, how many keys, and how many heads share the same keys."""
    return q.shape[2], k.shape[2], q.shape[1] // k.shape[1]


def launch(tile: Tile) -> dict[str, int]:
    """The tile as arguments of a kernel."""
    blocks = {"BLOCK_Q": tile.block_q, "BLOCK_K": tile.block_k}
    return {**blocks, "num_warps": tile.warps, "num_stages": tile.stages}


class FlashAttention(torch.autograd.Function):
    """Tells PyTorch how to compute the outputs, and how their gradients."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, offset: int) -> Tensor:
        outputs, lse = flash_forward(flash_forward_inner, q, k, v, offset)
        ctx.save_for_backward(q, k, v, outputs, lse)
        ctx.offset = offset
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, outputs, lse = ctx.saved_tensors
        delta = flash_delta(outputs, grads[0])
        saved = q, k, v, grads[0], lse, delta, ctx.offset
        grad_keys, grad_values = flash_dkv(flash_dkv_inner, *saved)
        return flash_dq(flash_dq_inner, *saved), grad_keys, grad_values, None


def flash_attention(
    q: Float[Tensor, "batch heads queries d"],
    k: Float[Tensor, "batch kv_heads keys d"],
    v: Float[Tensor, "batch kv_heads keys d"],
    *,
    is_causal: bool = False,
    align: str = "end",
) -> Float[Tensor, "batch heads queries d"]:
    """Exact attention that never stores the scores, forward and backward.

    `align` as in lesson 14. A query that sees nothing gets zeros. d is 16, 32, 64 or
    128; any strides; float16, bfloat16 or float32. Other inputs raise a ValueError.
    Without Triton, lesson 14's attention in tiles stands in.
    """
    require_kernel_fits(q, k, v)
    offset = causal_offset(q.shape[2], k.shape[2], align) if is_causal else k.shape[2]
    if not HAS_TRITON:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        return tiled_attention(q, k, v, is_causal=is_causal, align=align)[0]
    if INTERPRETED and q.dtype == torch.bfloat16:  # its arithmetic does not know it
        return FlashAttention.apply(q.float(), k.float(), v.float(), offset).bfloat16()
    return FlashAttention.apply(q, k, v, offset)


def attend_with_kernel(
    queries: Float[Tensor, "batch heads queries d"],
    keys: Float[Tensor, "batch heads keys d"],
    values: Float[Tensor, "batch heads keys d"],
    mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
) -> Float[Tensor, "batch heads queries d"]:
    """`flash_attention` as a model calls its attention. It takes no other mask."""
    if mask is not None:
        raise ValueError("the kernel takes `is_causal` only, no mask")
    return flash_attention(queries, keys, values, is_causal=is_causal)


HEAD_SIZES = (16, 32, 64, 128)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def require_kernel_fits(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raises a ValueError that says what is wrong with inputs for the kernels."""
    shapes = f"got q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}"
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ValueError(f"q, k, v need the shape (batch, heads, tokens, d); {shapes}")
    if k.shape != v.shape:
        raise ValueError(f"k and v need the same shape; {shapes}")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"q and k need the same batch and head size d; {shapes}")
    if 0 in q.shape or 0 in k.shape:
        raise ValueError(f"no size may be 0; {shapes}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"the heads of q must be a multiple of those of k; {shapes}")
    if q.shape[3] not in HEAD_SIZES:
        raise ValueError(f"the head size d must be one of {HEAD_SIZES}; {shapes}")
    if not q.dtype == k.dtype == v.dtype or q.dtype not in DTYPES:
        names = ", ".join(str(x.dtype) for x in (q, k, v))
        raise ValueError(f"q, k, v need one dtype of {DTYPES}, got {names}")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k, v are on {q.device}, {k.device} and {v.device}")
    if HAS_TRITON and not (q.is_cuda or INTERPRETED):
        raise ValueError(f"the kernels run on a GPU, but q, k, v are on the {q.device}")


# ------------------------------------------------------------------ what a GPU can do


class GPU(NamedTuple):
    """Limits from data sheets: TFLOP/s in half precision by tensor cores and in float32
    without them, GB/s from memory, and bytes of shared memory for one program.
    """

    tensor_tflops: float
    plain_tflops: float
    bandwidth: float
    shared: int


GPUS = {
    "T4": GPU(65, 8.1, 320, 65_536),
    "L4": GPU(121, 30.3, 300, 101_376),
    "A100": GPU(312, 19.5, 2039, 166_912),
    "H100": GPU(989, 67, 3350, 232_448),
    "H200": GPU(989, 67, 4800, 232_448),
}
# Of seven products of blocks in the two kernels of the backward pass five would do, so
# that at most this share of the peak can be reached.
SPLIT_BACKWARD = 5 / 7


def flop_and_bytes(n_tokens: int, d: int, itemsize: int = 2) -> tuple[int, int]:
    """Of one head forward: the products' operations, and the bytes that must be moved.

    Queries, keys and values are read once, the outputs and log-sum-exp written once.
    """
    return 4 * n_tokens**2 * d, 4 * n_tokens * d * itemsize + 4 * n_tokens


def gpu_called(name: str) -> GPU | None:
    """The limits of "NVIDIA A100-SXM4-80GB"; None where they are not in the table."""
    return next((gpu for short, gpu in GPUS.items() if short in name), None)
