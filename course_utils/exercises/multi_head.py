"""Lesson 06's exercises: vectors cut into heads and put together again, attention in all heads, and what it stores."""

import torch
from torch import nn

from course_utils.exercises import Exercise, case, normal
from course_utils.lessons import multi_head
from course_utils.lessons.masking import masked_attention, padding_mask
from course_utils.lessons.multi_head import split_heads

TWO_HEADS = torch.tensor([[[0, 1], [10, 11], [20, 21]], [[2, 3], [12, 13], [22, 23]]]).float()
THREE_TOKENS = torch.tensor([[0, 1, 2, 3], [10, 11, 12, 13], [20, 21, 22, 23]]).float()

# ---- split_heads ---------------------------------------------------------------------------------------------

ex = Exercise(
    multi_head.split_heads,
    points=2,
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


def tokens(*leading, n_tokens=5, n_heads=7, d_k=6):
    return case(normal(*leading, n_tokens, n_heads * d_k), n_heads)


x = normal(2, 5, 12)
ex.cases("three tokens that you can follow", case(THREE_TOKENS, 2).gives(TWO_HEADS))
ex.cases("a batch of 2, 5 tokens, 3 heads of 4 numbers", case(x, 3).gives(torch.stack(x.split(4, dim=-1), dim=1)))
ex.promises(tokens, "leading", "sizes", "dtypes", "gradients", "device")

CUT = "unflatten(-1, (n_heads, d_model // n_heads)).transpose(-3, -2)"
ex.mistake(
    "reshaped to heads without the transpose",
    {CUT: "reshape(*x.shape[:-2], n_heads, x.shape[-2], -1)"},
    hint="The shape is right, but the tokens are mixed: the first head gets all numbers of the first tokens. First "
    "cut to (…, tokens, heads, d_k), then swap two dimensions with `transpose(-3, -2)`.",
)
ex.mistake(
    "the heads still stand after the tokens",
    {".transpose(-3, -2)": ""},
    hint="Yours is (…, tokens, heads, d_k). Swap the dimensions -3 and -2, so that each head is a matrix of its own.",
)
ex.mistake(
    "every n_heads-th number goes to the same head",
    {CUT: "unflatten(-1, (-1, n_heads)).movedim(-1, -3)"},
    hint="A head gets numbers that stand side by side: the first d_k for head 0. `unflatten(-1, (n_heads, d_k))`, not "
    "(d_k, n_heads).",
)
ex.mistake(
    "pieces of n_heads numbers instead of n_heads pieces",
    {"n_heads, d_model // n_heads": "d_model // n_heads, n_heads"},
    hint="n_heads is the number of pieces. Each has d_k = d_model / n_heads numbers.",
)
ex.mistake(
    "`transpose(1, 2)`",
    {"(-3, -2)": "(1, 2)"},
    hint="1 and 2 are heads and tokens only if there is exactly one leading dimension. Count from the end: (-3, -2).",
)
ex.mistake(
    "the heads stand before the batch",
    lambda x, n_heads: torch.stack(x.chunk(n_heads, dim=-1)),
    hint="The leading dimensions stay in front: (…, heads, tokens, d_k). `torch.stack` takes `dim=-3`.",
)

# ---- merge_heads ---------------------------------------------------------------------------------------------

ex = Exercise(
    multi_head.merge_heads,
    points=1,
    minutes=5,
    hints=(
        "It is `split_heads` backwards: undo the last step first.",
        "First bring the tokens before the heads again: (…, tokens, heads, d_k). Then make one dimension of the last "
        "two.",
        "`x.transpose(-3, -2)`, then `.flatten(-2)`. `view` needs the numbers in their order in memory, and "
        "`transpose` changes the order without moving them. `flatten` and `reshape` copy where they must.",
    ),
)

heads = normal(2, 3, 5, 4)
ex.cases("two heads that you can follow", case(TWO_HEADS).gives(THREE_TOKENS))
ex.cases("a batch of 2, 3 heads, 5 tokens, 4 numbers a head", case(heads).gives(torch.cat([*heads.unbind(1)], dim=-1)))
ex.cases("it undoes `split_heads`", *(case(split_heads(x, n)).gives(x).noted(f"x cut {n} times") for n in (3, 1, 12)))
ex.promises(ex.inputs(heads=7, tokens=5, d_k=6), "leading", "sizes", "dtypes", "gradients", "device")

ex.mistake(
    "reshaped without the transpose",
    {"transpose(-3, -2).flatten(-2)": "reshape(*x.shape[:-3], x.shape[-2], -1)"},
    hint="The shape is right, but each row holds numbers of several tokens. Bring the tokens before the heads first: "
    "`transpose(-3, -2)`.",
)
ex.mistake(
    "merged in the wrong order: the heads' numbers alternate",
    {"transpose(-3, -2)": "movedim(-3, -1)"},
    hint="All numbers of head 0 come first, then all of head 1. Before you flatten, the order must be tokens, heads, "
    "d_k; yours is tokens, d_k, heads.",
)
ex.mistake("the last head first", {"x.": "x.flip(-3)."}, hint="Head 0 comes first, as `split_heads` has cut it.")
ex.mistake(
    "the heads under each other",
    {".transpose(-3, -2).flatten(-2)": ".flatten(-3, -2)"},
    hint="Yours has heads times tokens rows. The rows are the tokens: the pieces of one token stand side by side.",
)
ex.mistake(
    "added together",
    {"transpose(-3, -2).flatten(-2)": "sum(dim=-3)"},
    hint="The pieces are put side by side, not added: the result has heads · d_k columns.",
)
ex.mistake(
    "`transpose(1, 2)`",
    {"(-3, -2)": "(1, 2)"},
    hint="1 and 2 are heads and tokens only if there is exactly one leading dimension. Count from the end: (-3, -2).",
)

# ---- multi_head_attention ------------------------------------------------------------------------------------

ex = Exercise(
    multi_head.multi_head_attention,
    points=3,
    minutes=20,
    returns=("outputs", "weights"),
    hints=(
        "Five steps: project, cut into heads, attend in each head, merge, multiply by `w_o`. The heads are a leading "
        "dimension, and lesson 05's `masked_attention` takes any number of those.",
        "`split_heads(queries @ w_q, n_heads)` gives the queries of all heads; keys and values come from `data` in the "
        "same way. `masked_attention` returns two things, and `multi_head_attention` too.",
        "`heads, weights = masked_attention(q, k, v, mask)`, then `return merge_heads(heads) @ w_o, weights`. A mask "
        "(batch, 1, queries, data) is meant for all heads: its 1 stands for the heads. In a loop over the heads, "
        "`mask[:, head]` is not there.",
    ),
)


def layer(*leading, queries=5, data=7, d_query=6, d_data=10, d_k=8, d_v=11, d_out=9, n_heads=4, **mask):
    sizes = (d_query, d_k * n_heads), (d_data, d_k * n_heads), (d_data, d_v * n_heads), (d_v * n_heads, d_out)
    matrices = (normal(*size, seed=i) / size[0] ** 0.5 for i, size in enumerate(sizes))
    vectors = normal(*leading, queries, d_query, seed=8), normal(*leading, data, d_data, seed=9)
    return case(*vectors, *matrices, n_heads, **mask)


def head_after_head(queries, data, w_q, w_k, w_v, w_o, n_heads):
    columns = zip(*(w.chunk(n_heads, dim=-1) for w in (w_q, w_k, w_v)), strict=True)
    outputs, weights = zip(*(masked_attention(queries @ q, data @ k, data @ v) for q, k, v in columns), strict=True)
    return torch.cat(outputs, dim=-1) @ w_o, torch.stack(weights, dim=-3)


def pytorchs_layer(x, w_q, w_k, w_v, w_o, n_heads):
    module = nn.MultiheadAttention(len(w_o), n_heads, bias=False, batch_first=True)
    module.in_proj_weight.data, module.out_proj.weight.data = torch.cat([w_q.T, w_k.T, w_v.T]), w_o.T.contiguous()
    return tuple(result.detach() for result in module(x, x, x, average_attn_weights=False))


plain, visible = layer(2), normal(2, 4, 5, 7) < 0
visible[..., 1] = True
padding = padding_mask(torch.tensor([[4], [6]]), 7)
row_3_hidden = (torch.arange(5) != 3)[:, None].expand(5, 7)
square = *(normal(12, 12, seed=i) / 4 for i in range(4)), 3

ex.cases(
    "two tokens and two heads that you can follow",
    case(
        *(torch.eye(2), torch.eye(2), torch.tensor([[1.0986123, 0.0], [-1.0986123, 0.0]]), torch.eye(2)),
        *(torch.tensor([[4.0, 2.0], [0.0, 6.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 2),
    )
    .gives((torch.tensor([[4.0, 3.0], [4.0, 1.0]]), torch.tensor([[[0.75, 0.25], [0.25, 0.75]], [[0.5, 0.5]] * 2])))
    .noted("the example in the text"),
)
ex.cases("as one head after the other", plain.gives(head_after_head(*plain.args)))
ex.promises(layer, "leading", "sizes", "dtypes", "gradients", "device")
ex.cases(
    "self-attention is what `nn.MultiheadAttention` computes with the same weights",
    case(x, x, *square).gives(pytorchs_layer(x, *square)),
)
ex.cases(
    "one mask for all heads",
    layer(2, mask=visible[0, 0]),
    layer(2, mask=padding),
    layer(2, mask=visible[0, 0] & padding),
)
ex.cases("a mask of its own for every head", layer(2, mask=visible))
ex.cases("a query that may attend to nothing gets zeros", layer(2, mask=row_3_hidden).noted("row 3 is all False"))
ex.gradients("gradients through a mask, and none of them NaN", layer(2, mask=row_3_hidden).to(torch.float64))
ex.device("the mask may be on a GPU too", layer(2, mask=visible))

ex.mistake(
    "scaled by the width of the model",
    {"(q,": "(q * (q.shape[-1] / w_q.shape[-1]) ** 0.5,"},
    hint="Each head compares vectors of d_k numbers, so its scores are divided by √d_k. If you split the heads before "
    "`masked_attention`, it sees d_k and does that.",
)
ex.mistake(
    "no scale",
    {"(q,": "(q * q.shape[-1] ** 0.5,"},
    hint="The scores of each head are divided by √d_k. Lesson 05's `masked_attention` does that for you.",
)
ex.mistake(
    "the output projection is forgotten",
    {" @ w_o": ""},
    hint="The last step is a product with `w_o`. Without it no head's result meets another head's.",
)
SPLIT = """\
    q = split_heads(queries @ w_q, n_heads)
    k = split_heads(data @ w_k, n_heads)
    v = split_heads(data @ w_v, n_heads)"""
ex.mistake(
    "heads cut without the transpose",
    {
        SPLIT: "    projected = queries @ w_q, data @ w_k, data @ w_v\n"
        "    q, k, v = (x.reshape(*x.shape[:-2], n_heads, x.shape[-2], -1) for x in projected)"
    },
    hint="The heads hold numbers of several tokens. Use `split_heads`: cut, then swap two dimensions.",
)
ex.mistake(
    "the matrices cut without the transpose",
    {
        SPLIT: "    pairs = (queries, w_q), (data, w_k), (data, w_v)\n"
        "    q, k, v = (x.unsqueeze(-3) @ w.reshape(n_heads, len(w), -1) for x, w in pairs)"
    },
    hint="The columns of head 0 are the first d_k of *every* row of `w_q`; a reshape takes whole rows. Multiply first, "
    "then use `split_heads` on the product.",
)
ex.mistake(
    "heads merged without the transpose",
    {"merge_heads(heads)": "heads.reshape(*heads.shape[:-3], heads.shape[-2], -1)"},
    hint="The heads must stand side by side for each token. Use `merge_heads`: swap two dimensions, then flatten.",
)
ex.mistake(
    "merged in the wrong order",
    {"merge_heads(heads)": "heads.movedim(-3, -1).flatten(-2)"},
    hint="All numbers of head 0 come first, then all of head 1: that is how the rows of `w_o` are meant.",
)
ex.mistake(
    "the mask reaches the first head only",
    {
        "v, mask": "v, None if mask is None else "
        "mask.expand(*q.shape[:-1], k.shape[-2]).index_fill(-3, torch.arange(1, n_heads), True)"
    },
    hint="The other heads look at what is hidden. The mask is for all heads: give it to `masked_attention` as it is.",
)
ex.mistake(
    "the keys are the values",
    {"data @ w_v": "data @ w_k"},
    hint="The values are `data @ w_v`. `w_k` makes the keys, which are only compared.",
)
ex.mistake(
    "keys and values from the queries",
    {"data @ w_k": "queries @ w_k", "data @ w_v": "queries @ w_v"},
    hint="Keys *and* values come from `data`. The queries only ask.",
)
ex.mistake(
    "masked after the softmax",
    {"v, mask)": "v); heads = (weights := weights if mask is None else weights * mask) @ v"},
    hint="What is hidden has taken its share already, so the visible weights do not sum to 1. `masked_attention` takes "
    "the mask and hides before the softmax.",
)
ex.mistake(
    "a query that may attend to nothing gets NaN",
    {
        "heads, weights = masked_attention(q, k, v, mask)": "scores = q @ k.mT / q.shape[-1] ** 0.5\n"
        "    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)\n"
        "    weights = torch.softmax(scores, dim=-1); heads = weights @ v"
    },
    hint="A softmax over nothing but -inf is NaN. Lesson 05's `masked_attention` gives zeros there.",
)
ex.mistake(
    "the mask of the first head for all heads",
    {"v, mask)": "v, mask if mask is None or mask.ndim == 2 else mask[..., :1, :, :])"},
    hint="A mask may have a matrix of its own for every head. Give it to `masked_attention` as it is.",
)
ex.mistake("the mask is ignored", {"v, mask": "v"}, hint="Pass `mask` on to `masked_attention`.")
ex.mistake(
    "the mask upside down",
    {"v, mask": "v, None if mask is None else ~mask"},
    hint="True means *may attend*. Pass `mask` on as it is.",
)
ex.mistake(
    "one wide head",
    {SPLIT: "    q, k, v = queries @ w_q, data @ w_k, data @ w_v", "merge_heads(heads)": "heads"},
    hint="The projections are never cut, so there is only one softmax for each query. Use `split_heads` on all three.",
)
ex.mistake(
    "the mean of the weights over the heads",
    {"w_o, weights": "w_o, weights.mean(dim=-3)"},
    hint="Every head has its own map: return the weights as (…, heads, queries, data).",
)
ex.mistake(
    "the weights first",
    {"merge_heads(heads) @ w_o, weights": "weights, merge_heads(heads) @ w_o"},
    hint="The outputs come first, then the weights.",
)
ex.mistake("no weights", {"w_o, weights": "w_o"}, hint="Return two things: the outputs and the weights of every head.")

# ---- attention_matrix_bytes ----------------------------------------------------------------------------------

ex = Exercise(
    multi_head.attention_matrix_bytes,
    points=1,
    minutes=5,
    hints=(
        "How many weights are there for one head of one sequence? How many bytes has each?",
        "One weight for each pair of a query and a key, in each head of each sequence.",
        "A product of five numbers: `batch * n_heads * n_queries * n_keys * bytes_per_number`.",
    ),
)

ex.cases("3 tokens, 2 heads, 4 bytes: 72 bytes", case(3, 3, 2, 4).gives(72))
ex.cases("more keys than queries", case(5, 7, 3, 2).gives(210), case(1, 1000, 8, 8).gives(64_000))
ex.cases("a batch", case(5, 7, 3, 2, batch=11).gives(2310), case(5, 7, 3, 16, 1).gives(1680))
ex.cases(
    "twice the tokens, four times the bytes, exactly, also when they are many",
    case(60_001, 60_001, 48, 2).gives(60_001 * 60_001 * 96),
    case(120_002, 120_002, 48, 2).gives(120_002 * 120_002 * 96),
)

ex.mistake("the heads are forgotten", {"n_heads * ": ""}, hint="Each head has a matrix of weights of its own.")
ex.mistake(
    "the batch is forgotten",
    {"batch * ": ""},
    hint="Each sequence of the batch has its own weights: multiply by `batch` too.",
)
ex.mistake(
    "bits instead of bytes",
    {"return": "return 8 *"},
    hint="`bytes_per_number` counts bytes already. Do not multiply by 8.",
)
ex.mistake(
    "the numbers are counted, not their bytes",
    {" * bytes_per_number": ""},
    hint="Each number takes `bytes_per_number` bytes.",
)
ex.mistake(
    "N instead of N squared",
    {" * n_keys": ""},
    hint="Every query has a weight for *every* key: queries times keys, not one of the two.",
)
ex.mistake(
    "queries plus keys",
    {"n_queries * n_keys": "(n_queries + n_keys)"},
    hint="Every query has a weight for *every* key: a product, not a sum.",
)
ex.mistake(
    "the queries squared",
    {"n_keys": "n_queries"},
    hint="The matrix has n_queries rows and n_keys columns. They need not be equally many.",
)
ex.mistake(
    "a float",
    {"return": "return 1.0 *"},
    hint="Bytes are counted: return an int. `*` of ints stays an int, `/` and `1e9` make floats.",
)
