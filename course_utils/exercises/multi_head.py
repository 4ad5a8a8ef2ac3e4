"""Lesson 06's exercises: vectors cut into heads and put together again, attention in all heads, and what it stores."""

from functools import partial

import torch
from torch import nn

from course_utils.exercises import Exercise, expect, gradients
from course_utils.lessons import multi_head
from course_utils.lessons.masking import masked_attention, padding_mask
from course_utils.lessons.multi_head import attention_matrix_bytes, merge_heads, multi_head_attention, split_heads

DTYPES = (torch.float64, torch.float16, torch.bfloat16)


def _random(rng, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype)


def _gradient(function, x, factors):
    """The gradient of the sum of all results, each times its factor."""
    return gradients(lambda leaf: (function(leaf) * factors).sum(), [x])[0]


# ---- split_heads ---------------------------------------------------------------------------------------------

ex = Exercise(
    "split_heads",
    reference=multi_head.split_heads,
    points=2,
    seconds=5,
    minutes=10,
    hints=(
        "Two steps. First cut the last dimension in two: (…, tokens, d_model) becomes (…, tokens, heads, d_k). Then "
        "the heads must come to stand before the tokens.",
        "A reshape never moves a number in memory: it can cut a dimension, but it cannot bring the heads to the "
        "front. For that you need a `transpose`.",
        "`x.unflatten(-1, (n_heads, d_k))` cuts, `.transpose(-3, -2)` swaps heads and tokens. Count dimensions from "
        "the end, so that any number of leading dimensions works.",
    ),
)


@ex.check("three tokens that you can follow")
def _(answer, rng):
    x = torch.tensor([[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]]).float()
    wanted = torch.tensor([[[10, 11], [20, 21], [30, 31]], [[12, 13], [22, 23], [32, 33]]]).float()
    expect(answer(x, 2), wanted, "tokens [10, 11, 12, 13], [20, …], [30, …], 2 heads")


@ex.check("a batch of 2, 5 tokens, 3 heads of 4 numbers")
def _(answer, rng):
    x = _random(rng, 2, 5, 12)
    wanted = torch.stack([x[:, :, :4], x[:, :, 4:8], x[:, :, 8:]], dim=1)
    expect(answer(x, 3), wanted, "x (2, 5, 12), 3 heads")


@ex.check("no batch, and two leading dimensions")
def _(answer, rng):
    for leading in ((), (2, 4)):
        x = _random(rng, *leading, 5, 12)
        expect(answer(x, 3), split_heads(x, 3), f"leading dimensions {leading}, 5 tokens, d_model 12, 3 heads")


@ex.check("one head, one number a head, one token")
def _(answer, rng):
    for shape, n_heads in (((2, 5, 6), 1), ((2, 5, 6), 6), ((2, 1, 6), 3)):
        x = _random(rng, *shape)
        expect(answer(x, n_heads), split_heads(x, n_heads), f"x {shape}, {n_heads} heads")


@ex.check("float64, float16 and bfloat16 stay what they are")
def _(answer, rng):
    for dtype in DTYPES:
        x = _random(rng, 2, 5, 12, dtype=dtype)
        expect(answer(x, 3), split_heads(x, 3), f"{dtype}")


@ex.check("each gradient goes back to its own place")
def _(answer, rng):
    x, factors = _random(rng, 2, 5, 12), _random(rng, 2, 3, 5, 4)
    wanted = _gradient(lambda leaf: split_heads(leaf, 3), x, factors)
    expect(_gradient(lambda leaf: answer(leaf, 3), x, factors), wanted, "the gradient of a weighted sum")


@ex.mistake(
    "reshaped to heads without the transpose",
    hint="The shape is right, but the tokens are mixed: the first head gets all numbers of the first tokens. First "
    "cut to (…, tokens, heads, d_k), then swap two dimensions with `transpose(-3, -2)`.",
)
def _(x, n_heads):
    return x.reshape(*x.shape[:-2], n_heads, x.shape[-2], -1)


@ex.mistake(
    "the heads still stand after the tokens",
    hint="Yours is (…, tokens, heads, d_k). Swap the dimensions -3 and -2, so that each head is a matrix of its own.",
)
def _(x, n_heads):
    return x.unflatten(-1, (n_heads, -1))


@ex.mistake(
    "every n_heads-th number goes to the same head",
    hint="A head gets numbers that stand side by side: the first d_k for head 0. `unflatten(-1, (n_heads, d_k))`, not "
    "(d_k, n_heads).",
)
def _(x, n_heads):
    return x.unflatten(-1, (-1, n_heads)).movedim(-1, -3)


@ex.mistake(
    "pieces of n_heads numbers, in place of n_heads pieces",
    hint="n_heads is the number of pieces. Each has d_k = d_model / n_heads numbers.",
)
def _(x, n_heads):
    return x.unflatten(-1, (-1, n_heads)).transpose(-3, -2)


@ex.mistake(
    "only for one leading dimension",
    hint="Leading dimensions may be none or many. `unflatten(-1, …)` and `transpose(-3, -2)` count from the end.",
)
def _(x, n_heads):
    batch, n_tokens, d_model = x.shape
    return x.reshape(batch, n_tokens, n_heads, d_model // n_heads).transpose(1, 2)


@ex.mistake(
    "`transpose(1, 2)`",
    hint="1 and 2 are heads and tokens only if there is exactly one leading dimension. Count from the end: (-3, -2).",
)
def _(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


@ex.mistake(
    "the heads stand before the batch",
    hint="The leading dimensions stay in front: (…, heads, tokens, d_k). `torch.stack` takes `dim=-3`.",
)
def _(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1))


# ---- merge_heads ---------------------------------------------------------------------------------------------

ex = Exercise(
    "merge_heads",
    reference=multi_head.merge_heads,
    points=1,
    seconds=5,
    minutes=5,
    hints=(
        "It is `split_heads` backwards: undo the last step first.",
        "First bring the tokens before the heads again: (…, tokens, heads, d_k). Then make one dimension of the last "
        "two.",
        "`x.transpose(-3, -2)`, then `.flatten(-2)`.",
    ),
)


@ex.check("two heads that you can follow")
def _(answer, rng):
    x = torch.tensor([[[10, 11], [20, 21], [30, 31]], [[12, 13], [22, 23], [32, 33]]]).float()
    wanted = torch.tensor([[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]]).float()
    expect(answer(x), wanted, "head 0 [10, 11], [20, 21], [30, 31]; head 1 [12, 13], …")


@ex.check("a batch of 2, 3 heads, 5 tokens, 4 numbers a head")
def _(answer, rng):
    x = _random(rng, 2, 3, 5, 4)
    expect(answer(x), torch.cat([x[:, 0], x[:, 1], x[:, 2]], dim=-1), "x (2, 3, 5, 4)")


@ex.check("no batch, and two leading dimensions")
def _(answer, rng):
    for leading in ((), (2, 6)):
        x = _random(rng, *leading, 3, 5, 4)
        expect(answer(x), merge_heads(x), f"leading dimensions {leading}, 3 heads, 5 tokens, 4 numbers a head")


@ex.check("it undoes `split_heads`")
def _(answer, rng):
    for shape, n_heads in (((2, 5, 12), 3), ((2, 5, 6), 1), ((2, 5, 6), 6), ((2, 1, 6), 3)):
        x = _random(rng, *shape)
        expect(answer(split_heads(x, n_heads)), x, f"x {shape} cut into {n_heads} heads and merged")


@ex.check("float64, float16 and bfloat16 stay what they are")
def _(answer, rng):
    for dtype in DTYPES:
        x = _random(rng, 2, 3, 5, 4, dtype=dtype)
        expect(answer(x), merge_heads(x), f"{dtype}")


@ex.check("each gradient goes back to its own place")
def _(answer, rng):
    x, factors = _random(rng, 2, 3, 5, 4), _random(rng, 2, 5, 12)
    expect(_gradient(answer, x, factors), _gradient(merge_heads, x, factors), "the gradient of a weighted sum")


@ex.mistake(
    "reshaped without the transpose",
    hint="The shape is right, but each row holds numbers of several tokens. Bring the tokens before the heads first: "
    "`transpose(-3, -2)`.",
)
def _(x):
    return x.reshape(*x.shape[:-3], x.shape[-2], -1)


@ex.mistake(
    "merged in the wrong order: the heads' numbers alternate",
    hint="All numbers of head 0 come first, then all of head 1. Before you flatten, the order must be tokens, heads, "
    "d_k; yours is tokens, d_k, heads.",
)
def _(x):
    return x.movedim(-3, -1).flatten(-2)


@ex.mistake("the last head first", hint="Head 0 comes first, as `split_heads` has cut it.")
def _(x):
    return merge_heads(x.flip(-3))


@ex.mistake(
    "the heads under each other",
    hint="Yours has heads times tokens rows. The rows are the tokens: the pieces of one token stand side by side.",
)
def _(x):
    return x.flatten(-3, -2)


@ex.mistake(
    "`view` after `transpose`",
    hint="`view` needs the numbers in their order in memory, and `transpose` changes the order without moving them. "
    "`flatten` and `reshape` copy where they must.",
)
def _(x):
    x = x.transpose(-3, -2)
    return x.view(*x.shape[:-2], -1)


@ex.mistake("added together", hint="The pieces are put side by side, not added: the result has heads · d_k columns.")
def _(x):
    return x.sum(dim=-3)


@ex.mistake(
    "`transpose(1, 2)`",
    hint="1 and 2 are heads and tokens only if there is exactly one leading dimension. Count from the end: (-3, -2).",
)
def _(x):
    return x.transpose(1, 2).flatten(-2)


# ---- multi_head_attention ------------------------------------------------------------------------------------

ex = Exercise(
    "multi_head_attention",
    reference=multi_head.multi_head_attention,
    points=3,
    seconds=10,
    minutes=20,
    hints=(
        "Five steps: project, cut into heads, attend in each head, merge, multiply by `w_o`. The heads are a leading "
        "dimension, and lesson 05's `masked_attention` takes any number of those.",
        "`split_heads(queries @ w_q, n_heads)` gives the queries of all heads; keys and values come from `data` in the "
        "same way. `masked_attention` returns two things, and `multi_head_attention` too.",
        "`heads, weights = masked_attention(q, k, v, mask)`, then `return merge_heads(heads) @ w_o, weights`.",
    ),
)


def _inputs(rng, *leading, n_heads=3, queries=5, data=7, dtype=torch.float32):
    """Queries (…, 5, 6), data (…, 7, 10), d_k 4, d_v 2, d_out 9: no two sizes are the same."""
    vectors = _random(rng, *leading, queries, 6, dtype=dtype), _random(rng, *leading, data, 10, dtype=dtype)
    sizes = (6, 4 * n_heads), (10, 4 * n_heads), (10, 2 * n_heads), (2 * n_heads, 9)
    return *vectors, *(_random(rng, *size, dtype=dtype) / size[0] ** 0.5 for size in sizes), n_heads


def _expect_both(got, wanted, where):
    expect(type(got).__name__, "tuple", f"{where}: the kind of the result (outputs, weights)")
    expect(len(got), 2, f"{where}: the number of results (outputs, weights)")
    expect(got[1], wanted[1], f"{where}: the weights")
    expect(got[0], wanted[0], f"{where}: the outputs")


def _compare(answer, values, where, **mask):
    _expect_both(answer(*values, **mask), multi_head_attention(*values, **mask), where)


@ex.check("two tokens and two heads that you can follow")
def _(answer, rng):
    x = torch.eye(2)
    w_q, w_k = torch.tensor([[1.0986123, 0.0], [0.0, 0.0]]), torch.eye(2)
    w_v, w_o = torch.tensor([[4.0, 0.0], [0.0, 8.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    weights = torch.tensor([[[0.75, 0.25], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]])
    wanted = torch.tensor([[4.0, 3.0], [4.0, 2.0]]), weights
    _expect_both(answer(x, x, w_q, w_k, w_v, w_o, 2), wanted, "the example in the text")


@ex.check("5 queries over 7 data vectors, 3 heads: as one head after the other")
def _(answer, rng):
    queries, data, w_q, w_k, w_v, w_o, n_heads = _inputs(rng, 2)
    pieces = []
    for h in range(n_heads):
        wide, narrow = slice(4 * h, 4 * h + 4), slice(2 * h, 2 * h + 2)
        pieces.append(masked_attention(queries @ w_q[:, wide], data @ w_k[:, wide], data @ w_v[:, narrow]))
    wanted = torch.cat([outputs for outputs, _ in pieces], dim=-1) @ w_o, torch.stack([w for _, w in pieces], dim=1)
    _expect_both(answer(queries, data, w_q, w_k, w_v, w_o, n_heads), wanted, "queries (2, 5, 6), data (2, 7, 10)")


@ex.check("no batch, two leading dimensions, one head")
def _(answer, rng):
    _compare(answer, _inputs(rng), "no leading dimensions")
    _compare(answer, _inputs(rng, 2, 4), "leading dimensions (2, 4)")
    _compare(answer, _inputs(rng, 2, n_heads=1), "one head")


@ex.check("self-attention is what `nn.MultiheadAttention` computes with the same weights")
def _(answer, rng):
    x, w_o = _random(rng, 2, 5, 12), _random(rng, 12, 12) / 4
    projections = [_random(rng, 12, 12) / 4 for _ in range(3)]
    module = nn.MultiheadAttention(12, 3, bias=False, batch_first=True)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.cat([w.T for w in projections]))
        module.out_proj.weight.copy_(w_o.T)
        wanted = module(x, x, x, average_attn_weights=False)
    _expect_both(answer(x, x, *projections, w_o, 3), wanted, "x (2, 5, 12), 3 heads")


@ex.check("one mask for all heads")
def _(answer, rng):
    values = _inputs(rng, 2)
    mask = torch.rand(5, 7, generator=rng) < 0.5
    mask[:, 1] = True
    _compare(answer, values, "mask (5, 7), for weights of shape (2, 3, 5, 7)", mask=mask)
    padding = padding_mask(torch.tensor([[4], [6]]), 7)
    _compare(answer, values, "mask (2, 1, 1, 7), for weights of shape (2, 3, 5, 7)", mask=padding)
    _compare(answer, values, "mask (2, 1, 5, 7), for weights of shape (2, 3, 5, 7)", mask=mask & padding)


@ex.check("a mask of its own for every head")
def _(answer, rng):
    mask = torch.rand(2, 3, 5, 7, generator=rng) < 0.5
    mask[..., 1] = True
    _compare(answer, _inputs(rng, 2), "mask (2, 3, 5, 7)", mask=mask)


@ex.check("a query that may attend to nothing gets zeros")
def _(answer, rng):
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[3] = False
    _compare(answer, _inputs(rng, 2), "mask (5, 7), row 3 all False", mask=mask)


@ex.check("float64, float16 and bfloat16 stay what they are")
def _(answer, rng):
    for dtype in DTYPES:
        _compare(answer, _inputs(rng, 2, dtype=dtype), f"{dtype}")


@ex.check("gradients reach all inputs")
def _(answer, rng):
    *values, n_heads = _inputs(rng, 2, dtype=torch.float64)
    factors = _random(rng, 2, 5, 9, dtype=torch.float64)

    def total(function, *leaves):
        outputs, weights = function(*leaves, n_heads)
        return (outputs * factors).sum() + weights.square().sum()

    got, wanted = (gradients(partial(total, function), values) for function in (answer, multi_head_attention))
    expect(got, wanted, "the gradients of queries, data, w_q, w_k, w_v and w_o")


def _variant(
    *, split=split_heads, merge=merge_heads, scale=lambda q, d_model: q, mask_of=lambda mask, shape: mask, project=True
):
    """Multi-head attention with one part that is wrong."""

    def wrong(queries, data, w_q, w_k, w_v, w_o, n_heads, mask=None):
        q, k, v = split(queries @ w_q, n_heads), split(data @ w_k, n_heads), split(data @ w_v, n_heads)
        if mask is not None:
            mask = mask_of(mask, (*q.shape[:-1], k.shape[-2]))
        heads, weights = masked_attention(scale(q, w_q.shape[-1]), k, v, mask)
        return (merge(heads) @ w_o if project else merge(heads)), weights

    return wrong


ex.mistake(
    "scaled by the width of the model",
    hint="Each head compares vectors of d_k numbers, so its scores are divided by √d_k. If you split the heads before "
    "`masked_attention`, it sees d_k and does that.",
)(_variant(scale=lambda q, d_model: q * (q.shape[-1] / d_model) ** 0.5))
ex.mistake(
    "no scale", hint="The scores of each head are divided by √d_k. Lesson 05's `masked_attention` does that for you."
)(_variant(scale=lambda q, d_model: q * q.shape[-1] ** 0.5))
ex.mistake(
    "the output projection is forgotten",
    hint="The last step is a product with `w_o`. Without it no head's result meets another head's.",
)(_variant(project=False))
ex.mistake(
    "heads cut without the transpose",
    hint="The heads hold numbers of several tokens. Use `split_heads`: cut, then swap two dimensions.",
)(_variant(split=lambda x, n_heads: x.reshape(*x.shape[:-2], n_heads, x.shape[-2], -1)))
ex.mistake(
    "heads merged without the transpose",
    hint="The heads must stand side by side for each token. Use `merge_heads`: swap two dimensions, then flatten.",
)(_variant(merge=lambda x: x.reshape(*x.shape[:-3], x.shape[-2], -1)))
ex.mistake(
    "merged in the wrong order",
    hint="All numbers of head 0 come first, then all of head 1: that is how the rows of `w_o` are meant.",
)(_variant(merge=lambda x: x.movedim(-3, -1).flatten(-2)))
ex.mistake(
    "the mask only works with one copy for each head",
    hint="A mask (batch, 1, queries, data) is meant for all heads: its 1 stands for the heads. In a loop over the "
    "heads, `mask[:, head]` is not there.",
)(_variant(mask_of=lambda mask, shape: torch.stack([mask[:, h] for h in range(shape[-3])], dim=1)))


def _first_head_only(mask, shape):
    mask = mask.expand(shape).clone()
    mask[..., 1:, :, :] = True
    return mask


ex.mistake(
    "the mask reaches the first head only",
    hint="The other heads look at what is hidden. The mask is for all heads: give it to `masked_attention` as it is.",
)(_variant(mask_of=_first_head_only))
ex.mistake("the mask is ignored", hint="Pass `mask` on to `masked_attention`.")(
    _variant(mask_of=lambda mask, shape: None)
)
ex.mistake("the mask upside down", hint="True means *may attend*. Pass `mask` on as it is.")(
    _variant(mask_of=lambda mask, shape: ~mask)
)


@ex.mistake(
    "one wide head",
    hint="The projections are never cut, so there is only one softmax for each query. Use `split_heads` on all three.",
)
def _(queries, data, w_q, w_k, w_v, w_o, n_heads, mask=None):
    outputs, weights = masked_attention(queries @ w_q, data @ w_k, data @ w_v, mask)
    return outputs @ w_o, weights


@ex.mistake(
    "the mean of the weights over the heads",
    hint="Every head has its own map: return the weights as (…, heads, queries, data).",
)
def _(queries, data, w_q, w_k, w_v, w_o, n_heads, mask=None):
    outputs, weights = multi_head_attention(queries, data, w_q, w_k, w_v, w_o, n_heads, mask)
    return outputs, weights.mean(dim=-3)


@ex.mistake("no weights", hint="Return two things: the outputs and the weights of every head.")
def _(queries, data, w_q, w_k, w_v, w_o, n_heads, mask=None):
    return multi_head_attention(queries, data, w_q, w_k, w_v, w_o, n_heads, mask)[0]


# ---- attention_matrix_bytes ----------------------------------------------------------------------------------

ex = Exercise(
    "attention_matrix_bytes",
    reference=multi_head.attention_matrix_bytes,
    points=1,
    seconds=5,
    minutes=5,
    hints=(
        "How many weights are there for one head of one sequence? How many bytes has each?",
        "One weight for each pair of a query and a key, in each head of each sequence.",
        "A product of five numbers: `batch * n_heads * n_queries * n_keys * bytes_per_number`.",
    ),
)


@ex.check("3 tokens, 2 heads, 4 bytes: 72 bytes")
def _(answer, rng):
    expect(answer(3, 3, 2, 4), 72, "attention_matrix_bytes(3, 3, 2, 4)")


@ex.check("more keys than queries")
def _(answer, rng):
    expect(answer(5, 7, 3, 2), 210, "attention_matrix_bytes(5, 7, 3, 2)")
    expect(answer(1, 1000, 8, 2), 16_000, "attention_matrix_bytes(1, 1000, 8, 2)")


@ex.check("a batch")
def _(answer, rng):
    expect(answer(5, 7, 3, 2, batch=11), 2310, "attention_matrix_bytes(5, 7, 3, 2, batch=11)")
    expect(answer(5, 7, 3, 2, 1), 210, "attention_matrix_bytes(5, 7, 3, 2, 1)")


@ex.check("twice the tokens, four times the bytes, exactly, also when they are many")
def _(answer, rng):
    one, two = answer(60_001, 60_001, 48, 2), answer(120_002, 120_002, 48, 2)
    expect(one, 60_001 * 60_001 * 96, "60,001 tokens, 48 heads, 2 bytes")
    expect(two, 4 * one, "twice as many tokens")


@ex.mistake("the heads are forgotten", hint="Each head has a matrix of weights of its own.")
def _(n_queries, n_keys, n_heads, bytes_per_number, batch=1):
    return batch * n_queries * n_keys * bytes_per_number


@ex.mistake("the batch is forgotten", hint="Each sequence of the batch has its own weights: multiply by `batch` too.")
def _(n_queries, n_keys, n_heads, bytes_per_number, batch=1):
    return n_heads * n_queries * n_keys * bytes_per_number


@ex.mistake("bits in place of bytes", hint="`bytes_per_number` counts bytes already. Do not multiply by 8.")
def _(n_queries, n_keys, n_heads, bytes_per_number, batch=1):
    return 8 * attention_matrix_bytes(n_queries, n_keys, n_heads, bytes_per_number, batch)


@ex.mistake("the numbers are counted, not their bytes", hint="Each number takes `bytes_per_number` bytes.")
def _(n_queries, n_keys, n_heads, bytes_per_number, batch=1):
    return batch * n_heads * n_queries * n_keys


@ex.mistake(
    "N in place of N squared", hint="Every query has a weight for *every* key: queries times keys, not one of the two."
)
def _(n_queries, n_keys, n_heads, bytes_per_number, batch=1):
    return batch * n_heads * n_queries * bytes_per_number


@ex.mistake("queries plus keys", hint="Every query has a weight for *every* key: a product, not a sum.")
def _(n_queries, n_keys, n_heads, bytes_per_number, batch=1):
    return batch * n_heads * (n_queries + n_keys) * bytes_per_number


@ex.mistake(
    "the queries squared", hint="The matrix has n_queries rows and n_keys columns. They need not be equally many."
)
def _(n_queries, n_keys, n_heads, bytes_per_number, batch=1):
    return attention_matrix_bytes(n_queries, n_queries, n_heads, bytes_per_number, batch)


@ex.mistake("a float", hint="Bytes are counted: return an int. `*` of ints stays an int, `/` and `1e9` make floats.")
def _(n_queries, n_keys, n_heads, bytes_per_number, batch=1):
    return float(attention_matrix_bytes(n_queries, n_keys, n_heads, bytes_per_number, batch))
