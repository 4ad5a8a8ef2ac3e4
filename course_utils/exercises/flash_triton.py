"""Lesson 15's exercises: two kernels to begin with, and the inner loops of flash attention, forward and backward."""

import math
import mmap
from typing import Any

import torch
from torch import Tensor

from course_utils.exercises import Exercise, case, normal
from course_utils.exercises.cases import Case
from course_utils.exercises.kernels import NEEDS, OUTSIDE, compiles, watched
from course_utils.lessons import flash_triton
from course_utils.triton_or_stub import INTERPRETED, triton

FAR = 2**31  # numbers: the first distance that 32 bits cannot hold


def rows_apart(x: Tensor, apart: int) -> Tensor:
    """The same numbers, but row i of the last two dimensions begins i * apart numbers behind row 0.

    The memory between the rows is never used, and so it costs nothing. On a GPU it would: there it is `x` as it is.
    """
    if not INTERPRETED or not apart:
        return x
    n_bytes = ((x.shape[-2] - 1) * apart + x.shape[-1]) * x.element_size()
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    memory = torch.frombuffer(mmap.mmap(-1, n_bytes, flags=flags), dtype=x.dtype)
    strides = (*[0] * (x.ndim - 2), apart, 1)
    return memory.as_strided(x.shape, strides).copy_(x)


# ---- add_kernel ----------------------------------------------------------------------------------------------

ex = Exercise(
    flash_triton.add_kernel,
    points=1,
    minutes=10,
    outer=watched(flash_triton.add),
    returns=("sum", *OUTSIDE),
    needs=NEEDS,
    hints=(
        "Four steps: which places does this program do, load x, load y, store their sum. "
        "`tl.program_id(0)` is the number of the program.",
        "`tl.arange(0, BLOCK)` are the numbers 0 to BLOCK - 1. Add to them where the block begins, and you have the "
        "places of all its numbers; `x_ptr` plus places are addresses.",
        "`inside = places < n` is True where a place is not behind the end. Give it to each load and to the store: "
        "`tl.load(x_ptr + places, mask=inside)`.",
    ),
)


def sums(n: int, dtype: torch.dtype = torch.float32) -> Case:
    x, y = normal(n, dtype=dtype), normal(n, seed=1, dtype=dtype)
    return case(x, y).gives((x + y, 0, 0))


ex.cases(
    "three numbers that you can follow",
    case(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 20.0, 30.0])).gives(
        (torch.tensor([11.0, 22.0, 33.0]), 0, 0)
    ),
)
ex.cases("one block exactly, and two", sums(128), sums(256))
ex.cases("a last block that is not full: 129, 300 and 1 numbers", sums(129), sums(300), sums(1))
ex.cases("float16 stays float16", sums(200, torch.float16))
compiles(ex, "add(add_kernel, torch.empty(1000), torch.empty(1000))")

ex.mistake(
    "the tail is not masked",
    {"x + y, mask=inside": "x + y"},
    hint="The last block is longer than what is left, and your store writes behind the end of the result, where other "
    "numbers live. Give it `mask=inside`.",
)
ex.mistake(
    "the loads are not masked",
    {"x_ptr + places, mask=inside": "x_ptr + places", "y_ptr + places, mask=inside": "y_ptr + places"},
    hint="What is read behind the end of x is not stored, but the place may belong to nobody: on a GPU that is an "
    "error now and then. Give every load `mask=inside`.",
)
ex.mistake(
    "every program does the first block",
    {"tl.program_id(0) * BLOCK + ": ""},
    hint="All programs run the same code. Only `tl.program_id(0)` tells them apart: block i begins at i * BLOCK.",
)
ex.mistake(
    "the blocks overlap",
    {"tl.program_id(0) * BLOCK": "tl.program_id(0)"},
    hint="Program 1 begins at place 1, but it should begin at place BLOCK: multiply the program's number by BLOCK.",
)
ex.mistake(
    "the last number is left out",
    {"places < n": "places < n - 1"},
    hint="The places of n numbers are 0 to n - 1, and n - 1 is smaller than n: `places < n`.",
)
ex.mistake(
    "one number too many",
    {"places < n": "places <= n"},
    hint="The places of n numbers are 0 to n - 1. Place n lies behind the end: `places < n`.",
)
ex.mistake(
    "x is added to itself",
    {"y_ptr + places": "x_ptr + places"},
    hint="Your second load takes x again. y begins at `y_ptr`.",
)

# ---- softmax_kernel ------------------------------------------------------------------------------------------


def softmax(kernel, x, apart=0):
    """Both the rows of x and those of the result begin `apart` numbers behind each other."""
    if not apart:
        return flash_triton.softmax(kernel, x)
    x, out = rows_apart(x, apart), rows_apart(torch.full_like(x, math.nan), apart)
    n_rows, n = x.shape
    kernel[(n_rows,)](x, out, x.stride(0), out.stride(0), n, BLOCK=triton.next_power_of_2(n))
    return out.contiguous()  # a copy takes the memory between the rows with it


ex = Exercise(
    flash_triton.softmax_kernel,
    points=2,
    minutes=15,
    outer=watched(softmax),
    returns=("softmax", *OUTSIDE),
    needs=NEEDS,
    hints=(
        "A block holds a whole row, so no loop is needed: load it, subtract its maximum, take the exponential, divide "
        "by the sum. `tl.max(x, axis=0)` and `tl.sum(x, axis=0)` go over the row.",
        "BLOCK is larger than n, most of the time. What must a place behind the row be, so that it changes neither the "
        "maximum nor the sum? `tl.load(…, mask=…, other=…)` puts it there.",
        "`row = tl.cast(tl.program_id(0), tl.int64)`, so that all products with it have 64 bits. Then load with "
        '`other=-float("inf")`, and `.to(tl.float32)` before anything is computed.',
    ),
)


def rows(x: Tensor, **options: int) -> Case:
    return case(x, **options).gives((torch.softmax(x.double(), dim=-1).to(x.dtype), 0, 0))


wider = torch.full((5, 12), math.nan)
wider[:, :7] = normal(5, 7)
ex.cases(
    "two rows that you can follow",
    case(torch.tensor([[0.0, 1.0986123, 0.0], [5.0, 5.0, 5.0]]))
    .gives((torch.tensor([[0.2, 0.6, 0.2], [1 / 3, 1 / 3, 1 / 3]]), 0, 0))
    .noted("the second number is ln 3"),
)
ex.cases("a row of 8, which is a block, and rows of 5, 33 and 1", *(rows(normal(3, n)) for n in (8, 5, 33, 1)))
ex.cases("rows of 7 numbers that are parts of longer rows", rows(wider[:, :7]).noted("x is wider[:, :7]"))
ex.cases("all numbers below -1, and numbers of some hundreds", rows(normal(3, 7) - 9), rows(300 * normal(3, 7) - 500))
ex.cases(
    "three numbers near -1,000,000, and three near 1,000,000",
    rows(torch.tensor([[-1e6, -1e6 - 1, -1e6 - 2], [1e6, 1e6 - 1, 1e6 - 2]])),
)
ex.cases("float16, also where a power of e is larger than what it holds", rows(20 * normal(4, 9, dtype=torch.float16)))
ex.cases(
    "three rows that lie far apart, in x and in the result: 2 times the stride is 2 ** 31",
    rows(normal(3, 7, dtype=torch.float16), apart=FAR // 2),
)
compiles(ex, "softmax(softmax_kernel, torch.empty(64, 1000, dtype=torch.float16))")

ex.mistake(
    "the maximum is not subtracted",
    {" - tl.max(x, axis=0)": ""},
    hint="e to the power of 100 is too large for float32, and inf / inf is NaN. Subtract the row's maximum first: the "
    "softmax stays the same.",
)
ex.mistake(
    "the places behind the row count as zeros",
    {'other=-float("inf")': "other=0.0"},
    hint='A 0 behind the row becomes a power of e, and goes into the sum. Load `-float("inf")` there: its power is 0.',
)
ex.mistake(
    "the zeros behind the row count in the maximum",
    {
        'other=-float("inf")': "other=0.0",
        "tl.exp(x - tl.max(x, axis=0))": "inside * tl.exp(x - tl.max(x))",
    },
    hint="You hide the zeros behind the row after the exponential, but the maximum has seen them: where all numbers "
    'are far below 0, all their powers are 0, and so is the sum. Load `-float("inf")` there.',
)
ex.mistake(
    "what is loaded behind the row is not small enough",
    {'other=-float("inf")': "other=-10000.0"},
    hint="A row may hold numbers that are smaller than what you load behind it, and then that is the maximum. Only "
    '`-float("inf")` is smaller than every number.',
)
ex.mistake(
    "not divided by the sum",
    {" / tl.sum(powers)": ""},
    hint="The numbers of a row must sum to 1: divide by `tl.sum(powers, axis=0)`.",
)
ex.mistake(
    "32-bit offsets",
    {"tl.cast(tl.program_id(0), tl.int64)": "tl.program_id(0)"},
    hint="`tl.program_id` and a stride have 32 bits, and so has their product: from 2 ** 31 on it is a negative "
    "number, which is a place in somebody else's memory. Cast the row to `tl.int64` before you multiply.",
)
ex.mistake(
    "32-bit offsets in the result",
    {"row * out_stride": "tl.program_id(0) * out_stride"},
    hint="You compute the input's rows in 64 bits, but not those of the result: from 2 ** 31 on `i * out_stride` is a "
    "negative number. Cast the row to `tl.int64` once, and use it for both.",
)
ex.mistake(
    "the rows are taken to be side by side in memory",
    {"row * x_stride": "row * n"},
    hint="Row 1 begins `x_stride` numbers behind row 0. That is n only if the matrix is no part of a wider one.",
)
ex.mistake(
    "the input's stride for the result",
    {"row * out_stride": "row * x_stride"},
    hint="The result has a stride of its own: its rows begin at `out_ptr + row * out_stride`.",
)
ex.mistake(
    "the tail is not masked in the store",
    {"tl.sum(powers), mask=inside": "tl.sum(powers)"},
    hint="A block is longer than the row: without a mask the store writes into the next row, or behind the last one.",
)
ex.mistake(
    "the tail is not masked in the load",
    {', mask=inside, other=-float("inf")': ""},
    hint="A block is longer than the row: the numbers behind it belong to the next row, or to nobody. The load needs a "
    "mask, and `other`.",
)
ex.mistake(
    "every program does row 0",
    {"row * x_stride + ": "", "row * out_stride + ": ""},
    hint="All programs run the same code. Only `tl.program_id(0)` tells them apart: it is the number of the row.",
)
ex.mistake(
    "a power of 2 instead of e",
    {"tl.exp(": "tl.exp2("},
    hint="A softmax is made of powers of e: `tl.exp`. (A power of 2 is faster, but then the scores must be multiplied "
    "by log2(e) before.)",
)

# ---- the inner loops of attention ----------------------------------------------------------------------------


def formula(q: Tensor, k: Tensor, v: Tensor, offset: int) -> tuple[Tensor, Tensor]:
    """Outputs and log-sum-exp in float64, from lesson 05's formula."""
    q, k, v = q.double(), *(x.double().repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    visible = torch.arange(k.shape[2]) <= torch.arange(q.shape[2])[:, None] + offset
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~visible, -math.inf)
    weights = torch.where(visible, torch.softmax(scores, dim=-1), 0.0)
    return weights @ v, torch.logsumexp(scores, dim=-1)


def attention(queries=5, keys=7, d=16, *, batch=1, heads=1, kv_heads=1, size=1.0, dtype=torch.float32):
    """Random queries, keys, values, whose scores are about as large as `size`."""
    shapes = (batch, heads, queries, d), (batch, kv_heads, keys, d), (batch, kv_heads, keys, d)
    q, k, v = (normal(*shape, seed=i) for i, shape in enumerate(shapes))
    return (size * q).to(dtype), k.to(dtype), v.to(dtype)


def one_number(*numbers: float) -> Tensor:
    """Vectors of 16 numbers, of which only the first is not 0: (1, 1, tokens, 16)."""
    vectors = torch.zeros(1, 1, len(numbers), 16)
    vectors[..., 0] = torch.tensor(numbers)
    return vectors


def cancelling(large: float, first: float) -> list[float]:
    """Two blocks of 64 numbers, `large` and -`large`, but each begins with `first`, which half precision loses."""
    return [first, *[large] * 63, first, *[-large] * 63]


def steep(*scores: float) -> tuple[Tensor, Tensor, Tensor]:
    """Five queries that have the same scores with all keys; the keys are small, so that their gradients are exact."""
    return one_number(*[400.0] * 5), one_number(*[score / 100 for score in scores]), normal(1, 1, len(scores), 16)


def loud_future() -> tuple[Tensor, Tensor, Tensor]:
    """What a query may not see has scores some hundreds larger than what it may."""
    q, k, v = attention(40, 40)
    k[..., 0] = torch.arange(40) / 4
    q[..., 0] = 200.0
    return q, k, v


def strided(x: Tensor) -> Tensor:
    """The same numbers with the tokens before the heads in memory, and every second column left out."""
    batch, heads, tokens, d = x.shape
    return x.new_full((batch, tokens, heads, 2 * d), math.nan).transpose(1, 2)[..., ::2].copy_(x)


INPUTS: dict[str, list[tuple[Any, ...]]] = {
    "all keys visible: a block that is not full, and three blocks": [
        (*attention(5, 7), 7),
        (*attention(40, 150), 150),
    ],
    "causal, to the end and to the start": [
        (*attention(40, 150), 110),
        (*attention(40, 70), 0),
    ],
    "queries that may see nothing get zeros": [(*attention(20, 8), -12)],
    "scores that rise from key to key, from -400 to 796, and that fall": [
        (*steep(*range(-400, 800, 8)), 150),
        (*steep(*range(796, -404, -8)), 150),
    ],
    "all scores near -400": [(*steep(*torch.linspace(-401, -399, 70).tolist()), 70)],
    "what is hidden has much larger scores": [(*loud_future(), 0)],
    "several heads share keys, and there is a batch": [(*attention(5, 7, 32, batch=2, heads=4, kv_heads=2), 2)],
    "numbers that do not lie side by side in memory": [(*map(strided, attention(5, 70, heads=2, kv_heads=2)), 65)],
    "one query, one key": [(*attention(1, 1), 0)],
    "float16": [(*attention(5, 70, 32, size=3.0, dtype=torch.float16), 65)],
}


def forward(inner, q, k, v, offset, apart=0):
    return flash_triton.flash_forward(inner, q, rows_apart(k, apart), v, offset)


ex = Exercise(
    flash_triton.flash_forward_inner,
    points=4,
    minutes=30,
    seconds=60,
    outer=watched(forward),
    returns=("outputs", "log-sum-exp", *OUTSIDE),
    needs=NEEDS,
    hints=(
        "It is the loop of lesson 14. For each block: load keys and values, compute the scores, hide some, find the "
        "new maximum, compute the weights, rescale what was summed so far, add.",
        "`load_rows(k, start, n_keys, BLOCK_K, D, MASKED)` gives a block of keys, and `dot(queries, tl.trans(keys))` "
        'its products. Hide with `tl.where(visible, scores, -float("inf"))` *before* you look for the maximum; query i '
        "sees the keys before n_visible[i].",
        "`rescale = tl.exp2(row_max - new_max)` multiplies both `row_sum` and `acc`. Where all is hidden so far, "
        "new_max is -inf, and -inf - -inf is NaN: subtract 0 there instead. For `dot` the weights need "
        "`.to(values.dtype)`.",
    ),
)


def outputs_of(q: Tensor, k: Tensor, v: Tensor, offset: int, **options: int) -> Case:
    outputs, log_sum_exp = formula(q, k, v, offset)
    return case(q, k, v, offset, **options).gives((outputs.to(q.dtype), log_sum_exp.float(), 0, 0))


nothing = torch.zeros(1, 1, 3, 16)
ex.cases(
    "all scores 0, so an output is the mean of the values that a query sees",
    case(nothing, nothing, one_number(3.0, 6.0, 9.0), 0)
    .gives((one_number(3.0, 4.5, 6.0), torch.tensor([1.0, 2.0, 3.0]).log()[None, None], 0, 0))
    .noted("query i sees the keys 0 to i; the values begin with 3, 6 and 9"),
)
for name, inputs in INPUTS.items():
    ex.cases(name, *(outputs_of(*one) for one in inputs))
ex.cases(
    "65 keys that lie far apart: 64 times their stride is 2 ** 31",
    outputs_of(*attention(5, 65, dtype=torch.float16), 65, apart=FAR // 64),
)
ex.cases(
    "float16 values 1,000 and -1,000, whose sums nearly cancel: the sums are float32",
    outputs_of(
        one_number(0).half(), one_number(*[0] * 128).half(), one_number(*cancelling(1000, 1)).half(), offset=128
    ),
)
TENSORS = "q, k, v = (torch.empty(1, 2, 256, 64, dtype=torch.float16) for _ in range(3))"
FLOAT32 = "q, k, v = (torch.empty(1, 1, 64, 16) for _ in range(3))"
LAUNCH = "flash_forward(flash_forward_inner, q, k, v, 0)"
compiles(ex, f"{TENSORS}\n{LAUNCH}\n{FLOAT32}\n{LAUNCH}")

HIDE = """\
        if MASKED:
            visible = start + tl.arange(0, BLOCK_K)[None, :] < n_visible[:, None]
            scores = tl.where(visible, scores, -float("inf"))
"""
HIDE_WEIGHTS = """\
        if MASKED:
            visible = start + tl.arange(0, BLOCK_K)[None, :] < n_visible[:, None]
            weights = tl.where(visible, weights, 0.0)
"""
FAR_KEYS = """\
ptr, row_stride, column_stride = k
        places = start + tl.arange(0, BLOCK_K)[:, None]
        columns = tl.arange(0, D)[None, :] * column_stride
        keys = tl.load(ptr + places * row_stride + columns, mask=places < n_keys, other=0.0)"""
LOAD_KEYS = "keys = load_rows(k, start, n_keys, BLOCK_K, D, MASKED)"
LOAD_VALUES = LOAD_KEYS.replace("keys =", "values =").replace("(k,", "(v,")


def mistakes_of_both_loops(ex: Exercise) -> None:
    """What goes wrong with the keys in the same way, forward and backward."""
    ex.mistake(
        "the mask is off by one",
        {"[None, :] < n_visible": "[None, :] <= n_visible"},
        hint="A query that sees n keys sees the keys 0 to n - 1: `<`, not `<=`.",
    )
    ex.mistake(
        "the tail is not masked",
        {LOAD_KEYS: LOAD_KEYS.replace("MASKED", "False")},
        hint="The last block reaches past the last key, and what is read there belongs to somebody else. The last "
        "argument of `load_rows` says whether a block may have a tail: MASKED.",
    )
    ex.mistake(
        "no tail is masked",
        {LOAD_KEYS: LOAD_KEYS.replace("MASKED", "False"), LOAD_VALUES: LOAD_VALUES.replace("MASKED", "False")},
        hint="`load_rows(…, False)` reads whole blocks, but if MASKED the last one may reach past `n_keys`. Give "
        "MASKED as the last argument, TAIL, for the keys and for the values.",
    )
    ex.mistake(
        "32-bit offsets",
        {LOAD_KEYS: FAR_KEYS},
        hint="`start` and a stride have 32 bits, and so has their product: from 2 ** 31 on it is a negative number. "
        "Multiply in 64 bits, `tl.cast(start, tl.int64) * stride`, or let `load_rows` do it.",
    )


NEW_MAX = "tl.maximum(row_max, tl.max(scores, axis=1))"

ex.mistake(
    "the accumulator is not rescaled",
    {"acc * rescale[:, None]": "acc * 1.0"},
    hint="`acc` was summed with weights that belong to the old maximum. When the maximum grows, multiply `acc` by "
    "`rescale`, as you do with `row_sum`.",
)
ex.mistake(
    "the sum is not rescaled",
    {"row_sum * rescale": "row_sum"},
    hint="`row_sum` was summed with weights that belong to the old maximum. When the maximum grows, multiply it by "
    "`rescale`, as you do with `acc`.",
)
ex.mistake(
    "the maximum is not subtracted",
    {NEW_MAX: "tl.zeros_like(row_max)"},
    hint="2 ** score overflows float32 from 128 on, and where all scores are below -149 everything is 0. Subtract the "
    "largest score so far: `tl.exp2(scores - new_max[:, None])`.",
)
ex.mistake(
    "the maximum of this block only",
    {NEW_MAX: "tl.max(scores, axis=1)"},
    hint="`row_max` is the largest score of *all* blocks so far: `tl.maximum(row_max, tl.max(scores, axis=1))`. Else "
    "`rescale` grows without limit when a later block has small scores.",
)
ex.mistake(
    "masked after the maximum",
    {
        HIDE: "",
        "        rescale = ": HIDE_WEIGHTS + "        rescale = ",
    },
    hint="A hidden key may have the largest score: then the weights of all visible keys are 0. Put -inf into the "
    "scores before you look for their maximum.",
)
ex.mistake(
    "nothing is hidden",
    {HIDE: ""},
    hint="If MASKED, query i sees the keys before n_visible[i] only. The others get the score -inf.",
)
mistakes_of_both_loops(ex)
ex.mistake(
    "the sums are rounded to half precision",
    {"(weights.to(values.dtype), values)": "(weights.to(values.dtype), values).to(values.dtype)"},
    hint="`dot` gives float32, and `acc` is float32: add the product as it is. Only the weights are rounded, *before* "
    "their product. Half precision has 11 bits, and a sum of many values needs more.",
)
ex.mistake(
    "the scale is forgotten",
    {" * log2_scale": ""},
    hint="A score is query · key * log2_scale. (It holds 1 / √d and, since we take powers of 2, log2(e).)",
)
ex.mistake(
    "powers of e instead of 2",
    {"tl.exp2(scores": "tl.exp(scores", "tl.exp2(row_max": "tl.exp(row_max"},
    hint="`log2_scale` holds log2(e) already, so the weights are powers of 2: `tl.exp2`.",
)
ex.mistake(
    "only the last block is summed",
    {"row_sum * rescale + ": ""},
    hint="`row_sum` goes on from block to block: the old sum times `rescale`, plus the weights of this block.",
)
ex.mistake(
    "a query that may see nothing gets NaN",
    {'tl.where(new_max == -float("inf"), 0.0, new_max)': "new_max"},
    hint="Where all keys so far are hidden, the maximum is -inf, and -inf - -inf is NaN. Subtract 0 there: the weights "
    "are 2 ** -inf, which is 0.",
)
ex.mistake(
    "the old maximum is kept",
    {"row_max = new_max": "row_max = row_max"},
    hint="The next block needs the maximum that the sums belong to now: `row_max = new_max` at the end of the loop.",
)

# ---- flash_dq_inner ------------------------------------------------------------------------------------------


def grad_queries(inner, q, k, v, grad_outputs, offset, apart=0):
    outputs, log_sum_exp = (x.to(q.device) for x in formula(q.cpu(), k.cpu(), v.cpu(), offset))
    delta = (outputs * grad_outputs.double()).sum(dim=-1).float()
    far = rows_apart(k, apart)
    return flash_triton.flash_dq(inner, q, far, v, grad_outputs, log_sum_exp.float(), delta, offset)


ex = Exercise(
    flash_triton.flash_dq_inner,
    points=3,
    minutes=25,
    seconds=60,
    outer=watched(grad_queries),
    returns=("gradient of the queries", *OUTSIDE),
    needs=NEEDS,
    hints=(
        "The loop is that of the forward pass, but simpler: the log-sum-exp is known, so there is no maximum and "
        "nothing to rescale. First compute the weights again, then the gradients of the scores, then add.",
        "`weights = tl.exp2(scores - log_sum_exp[:, None])`: every weight is final. The gradient of a weight is the "
        "product of the output's gradient and the value: `dot(grad_outputs, tl.trans(values))`.",
        "`grad_scores = weights * (grad_weights - delta[:, None])`, and "
        "`grad_queries += dot(grad_scores.to(keys.dtype), keys)`. Hide the same scores as in the forward pass.",
    ),
)


def gradient_of(q: Tensor, k: Tensor, v: Tensor, offset: int, **options: int) -> Case:
    leaf = q.double().requires_grad_()
    grad_outputs = normal(*q.shape, seed=9, dtype=q.dtype)
    outputs, _ = formula(leaf, k, v, offset)
    (gradient,) = torch.autograd.grad(outputs, leaf, grad_outputs.double())
    return case(q, k, v, grad_outputs, offset, **options).gives((gradient.to(q.dtype), 0, 0))


ex.cases(
    "two keys with equal weights, values 0 and 8: the query moves towards the key with the larger value",
    case(nothing[:, :, :1], one_number(-1.0, 1.0), one_number(0.0, 8.0), one_number(1.0), 2)
    .gives((one_number(1.0), 0, 0))
    .noted("keys -1 and 1; the gradient of the output is 1, and √d is 4"),
)
for name, inputs in INPUTS.items():
    ex.cases(name, *(gradient_of(*one) for one in inputs))
ex.cases(
    "65 keys that lie far apart: 64 times their stride is 2 ** 31",
    gradient_of(*attention(5, 65, dtype=torch.float16), 65, apart=FAR // 64),
)
ex.cases(
    "float16 keys near 1,000, whose sums nearly cancel: the sums are float32",
    case(
        *(x.half() for x in (one_number(0), one_number(*[1016], *[1000] * 63, *[984], *[1000] * 63))),
        one_number(*[1] * 64, *[-1] * 64).half(),
        one_number(1).half(),
        128,
    )
    .gives((one_number(32 / 128 / 4).half(), 0, 0))
    .noted("all weights are equal, and the gradients of the scores are 1 / 128 and -1 / 128"),
)
LAUNCH = "flash_dq(flash_dq_inner, q, k, v, q, q[..., 0].float(), q[..., 0].float(), 0)"
compiles(ex, f"{TENSORS}\n{LAUNCH}\n{FLOAT32}\n{LAUNCH}")

ex.mistake(
    "delta is forgotten",
    {" - delta[:, None]": ""},
    hint="When one weight grows, the others shrink, since they sum to 1. That is what delta stands for: a score's "
    "gradient is weight * (gradient of the weight - delta).",
)
ex.mistake(
    "the scale is forgotten",
    {" * log2_scale": ""},
    hint="The scores must be those of the forward pass, query · key * log2_scale, or the weights are others.",
)
ex.mistake(
    "the causal mask is ignored",
    {"[None, :] < n_visible[:, None]": "[None, :] < n_keys"},
    hint="What was hidden in the forward pass had the weight 0, and must have it here too: query i sees the keys "
    "before n_visible[i] only.",
)
ex.mistake(
    "nothing is hidden",
    {HIDE: ""},
    hint="If MASKED, query i sees the keys before n_visible[i] only. Behind the last key there are zeros, whose weight "
    "2 ** (0 - log_sum_exp) is not 0, and may be inf.",
)
mistakes_of_both_loops(ex)
ex.mistake(
    "the sums are rounded to half precision",
    {"(grad_scores.to(keys.dtype), keys)": "(grad_scores.to(keys.dtype), keys).to(keys.dtype)"},
    hint="`dot` gives float32, and `grad_queries` is float32: add the product as it is. Only the gradients of the "
    "scores are rounded, *before* their product. Half precision has 11 bits, and a sum of many keys needs more.",
)
ex.mistake(
    "the gradient of the weights is not multiplied by the weights",
    {"weights * (grad_weights": "1.0 * (grad_weights"},
    hint="A score with a small weight hardly moves the output: its gradient is the weight times (gradient of the "
    "weight - delta).",
)
ex.mistake(
    "the values instead of the keys",
    {"(keys.dtype), keys)": "(keys.dtype), values)"},
    hint="A score is query · key, so the gradient that it gives to the query is the *key* times the score's gradient.",
)
ex.mistake(
    "only the last block is left",
    {"grad_queries += ": "grad_queries = "},
    hint="Every block of keys gives something to the same queries: add, do not overwrite.",
)
ex.mistake(
    "powers of e instead of 2",
    {"tl.exp2(": "tl.exp("},
    hint="`log2_scale` holds log2(e) already, and `log_sum_exp` is to base 2 here: `tl.exp2`.",
)
ex.mistake(
    "the sum is not in the weights",
    {"log_sum_exp[:, None]": "tl.max(scores, axis=1)[:, None]"},
    hint="A weight is 2 ** (score - log_sum_exp): subtracting the maximum only leaves it undivided by the sum.",
)
