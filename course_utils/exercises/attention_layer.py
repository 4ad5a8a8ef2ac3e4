"""Lesson 03's exercises: scores, how they vary, attention with its scale, and the layer with its projections."""

import torch

from course_utils.exercises import Exercise, case
from course_utils.lessons import attention_layer
from course_utils.lessons.attention_layer import similarity_scores

# ---- similarity_scores ---------------------------------------------------------------------------------------

ex = Exercise(
    attention_layer.similarity_scores,
    points=1,
    minutes=5,
    hints=(
        "One matrix product makes all dot products at once. Which dimension must be the inner one, the one that is "
        "summed over?",
        "Queries are (queries, d_k), keys must become (d_k, keys). Only the last two dimensions change places.",
        "`keys.transpose(-2, -1)` swaps the last two dimensions, whatever stands before them. `@` does the rest.",
    ),
)

sizes = ex.inputs(queries=5, keys=7, d_k=8)
plain = sizes()

ex.cases(
    "two queries and three keys that you can follow",
    case(
        torch.tensor([[1.0, 2.0], [3.0, 0.0]]),
        torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]]),
    ).gives(torch.tensor([[1.0, 2.0, 0.0], [3.0, 0.0, 6.0]])),
)
ex.cases(
    "5 queries, 7 keys, d_k 8: each score is a dot product",
    plain.gives(torch.stack([torch.stack([q.dot(k) for k in plain.args[1]]) for q in plain.args[0]])),
)
ex.promises(sizes, "leading", "sizes", "dtypes", "gradients", "device")

ex.mistake(
    "all dimensions reversed",
    {"transpose(-2, -1)": "permute(*reversed(range(keys.dim())))"},
    hint="`.T` or `transpose(0, 1)` also moves the leading dimensions. Swap the last two: `transpose(-2, -1)`.",
)
ex.mistake(
    "`transpose(0, 1)`",
    {"(-2, -1)": "(0, 1)"},
    hint="`.T` or `transpose(0, 1)` also moves the leading dimensions. Swap the last two: `transpose(-2, -1)`.",
)
ex.mistake(
    "`transpose(1, 2)`",
    {"(-2, -1)": "(1, 2)"},
    hint="1 and 2 are the last two dimensions only if there is exactly one leading dimension. Count from the end: "
    "`transpose(-2, -1)`.",
)
ex.mistake(
    "the keys are not turned",
    {".transpose(-2, -1)": ""},
    hint="`queries @ keys` takes the *columns* of the keys. A key is a row: swap the last two dimensions of `keys` "
    "first.",
)
ex.mistake(
    "reshaped, not turned",
    {"transpose(-2, -1)": "reshape(*leading, d_k, -1)"},
    hint="A reshape to (d_k, keys) has the right shape, but it mixes the numbers of several keys. "
    "`transpose(-2, -1)` makes each key a column.",
)
ex.mistake(
    "the table lies on its side",
    {"queries @ keys.": "keys @ queries."},
    hint="One row per query and one column per key is asked for. Yours has one row per key.",
)
ex.mistake(
    "query i meets key i only",
    lambda queries, keys: (queries * keys).sum(dim=-1),
    hint="`*` brings together what has the same place. Every query meets *every* key: that is a matrix product, `@`.",
)
ex.mistake(
    "each leading index meets every other",
    lambda queries, keys: torch.inner(queries, keys),
    hint="The queries of one sequence meet the keys of the same sequence only. `@` keeps the leading dimensions apart.",
)
ex.mistake(
    "already divided by √d_k",
    {"return queries": "return d_k**-0.5 * queries"},
    hint="Here the plain dot product is asked for. The division comes later.",
)
ex.mistake(
    "the mean of the products",
    {"return queries": "return 1 / d_k * queries"},
    hint="A dot product is the *sum* of the products. Do not divide it by d_k.",
)
ex.mistake(
    "the cosine of the angle",
    lambda queries, keys: torch.cosine_similarity(queries.unsqueeze(-2), keys.unsqueeze(-3), dim=-1),
    hint="The dot product is asked for: do not divide by the lengths of the vectors.",
)
ex.mistake(
    "products without their sum",
    lambda queries, keys: queries.unsqueeze(-2) * keys.unsqueeze(-3),
    hint="A dot product also adds: sum the products over d_k, the last dimension.",
)
ex.mistake(
    "softmax of the scores",
    {"queries @ keys.transpose(-2, -1)": "torch.softmax(queries @ keys.transpose(-2, -1), dim=-1)"},
    hint="Only the scores are asked for here. The softmax comes after them.",
)
ex.mistake(
    "always float32",
    {"queries @ keys.": "queries.float() @ keys.float()."},
    hint="The result has the dtype of the inputs: float64 and half precision stay what they are.",
)

# ---- score_variance ------------------------------------------------------------------------------------------

ex = Exercise(
    attention_layer.score_variance,
    points=1,
    minutes=10,
    hints=(
        "Two steps: first one dot product for each draw, then the variance of these numbers.",
        "Query i meets key i only. `queries * keys` multiplies number by number; which dimension is summed?",
        "`(queries * keys).sum(dim=-1)` has one number per draw. `.var(dim=-1)` divides by (draws - 1) by itself.",
    ),
)

draws = ex.inputs(draws=6, d_k=8)
plain = draws()
scores = [q.dot(k) for q, k in zip(*plain.args, strict=True)]
mean = sum(scores) / 6

ex.cases(
    "three draws that you can follow",
    case(
        torch.tensor([[1.0, 2.0], [3.0, 0.0], [1.0, 1.0]]),
        torch.tensor([[1.0, 0.0], [1.0, 1.0], [2.0, 3.0]]),
    )
    .gives(torch.tensor(4.0))
    .noted("dot products 1, 3 and 5: (4 + 0 + 4) / (3 - 1)"),
)
ex.cases("6 draws, d_k 8", plain.gives(sum((score - mean) ** 2 for score in scores) / 5))
ex.cases(
    "numbers around 1 instead of 0",
    case(*(x + 1 for x in plain.args)).noted("draws whose dot products are not 0 on average"),
)
ex.cases(
    "numbers around 3000, whose squares lose their last digits",
    case(torch.tensor([[3000.25], [3001.5], [3000.125], [3002.75]]), torch.ones(4, 1)),
)
# One draw has no variance, so the sizes of the other exercises do not all fit here.
ex.promises(draws, "leading", "dtypes", "gradients", "device")
ex.cases("two draws, and d_k 1", draws(3, draws=2), draws(3, d_k=1), draws(1, draws=2, d_k=1))
ex.cases("all sizes equal", *(draws(*leading, draws=4, d_k=4) for leading in ((2,), (4,), (4, 4))))
ex.cases("larger d_k, larger variance", draws(draws=500, d_k=16), draws(draws=500, d_k=64))

ex.mistake(
    "the standard deviation",
    {".var(": ".std("},
    hint="That is the square root of the variance. Leave the root out: `var`.",
)
ex.mistake(
    "divided by the number of draws",
    {"var(dim=-1)": "var(dim=-1, correction=0)"},
    hint="Divide the sum of squares by (draws - 1), as `torch.var` does.",
)
ex.mistake(
    "not divided at all",
    {"var(dim=-1)": "var(dim=-1, correction=queries.shape[-2] - 1)"},
    hint="You have the sum of the squared distances. Divide it by (draws - 1).",
)
ex.mistake(
    "every query with every key",
    lambda queries, keys: similarity_scores(queries, keys).flatten(-2).var(dim=-1),
    hint="Query i meets key i only: draws dot products, not draws × draws. Multiply number by number, then sum.",
)
ex.mistake(
    "every query with every key, a variance for each query",
    lambda queries, keys: similarity_scores(queries, keys).var(dim=-1),
    hint="Query i meets key i only: draws dot products, not draws × draws. Multiply number by number, then sum.",
)
ex.mistake(
    "every query with every key, one variance for everything",
    lambda queries, keys: similarity_scores(queries, keys).var(),
    hint="Query i meets key i only: draws dot products, not draws × draws. Multiply number by number, then sum.",
)
ex.mistake(
    "every query with every key, with `.T`",
    lambda queries, keys: (queries @ keys.permute(*reversed(range(keys.dim())))).var(),
    hint="Query i meets key i only: draws dot products, not draws × draws. Multiply number by number, then sum.",
)
ex.mistake(
    "the mean of the squares",
    {"var(dim=-1)": "square().mean(dim=-1)"},
    hint="A variance measures distances from the mean. Subtract the mean of the dot products first.",
)
ex.mistake(
    "the squares, divided by (draws - 1)",
    {".var(dim=-1)": ".square().sum(dim=-1) / (queries.shape[-2] - 1)"},
    hint="A variance measures distances from the mean. Subtract the mean of the dot products first.",
)
ex.mistake(
    "the mean of the squares minus the square of the mean",
    {
        "return (queries * keys).sum(dim=-1).var(dim=-1)": "x, n = (queries * keys).sum(dim=-1), queries.shape[-2]\n"
        "    return (x.square().mean(dim=-1) - x.mean(dim=-1).square()) * n / (n - 1)"
    },
    hint="On paper this is right. But it subtracts two large numbers that are nearly equal, and their last digits are "
    "lost. Subtract the mean first, then square.",
)
ex.mistake(
    "the products are not summed",
    {"sum(dim=-1)": "flatten(-2)"},
    hint="You took the variance of single products. A dot product is their sum over d_k; take that first.",
)
ex.mistake(
    "one variance of all products",
    {".sum(dim=-1).var(dim=-1)": ".var()"},
    hint="You took the variance of single products. A dot product is their sum over d_k; take that first.",
)
ex.mistake(
    "a variance for each draw",
    {".sum(dim=-1).var(dim=-1)": ".var(dim=-1)"},
    hint="The d_k products of one draw are first summed to its dot product. The variance then is over the draws.",
)
ex.mistake(
    "a variance for each of the d_k products",
    {".sum(dim=-1).var(dim=-1)": ".var(dim=-2)"},
    hint="You took the variance of single products. A dot product is their sum over d_k; take that first.",
)
ex.mistake(
    "the sum over the draws, the variance over d_k",
    {"sum(dim=-1)": "sum(dim=-2)"},
    hint="A dot product is a sum over d_k, the last dimension. The variance then is over the draws.",
)
ex.mistake(
    "the mean of the products instead of their sum",
    {"sum(dim=-1)": "mean(dim=-1)"},
    hint="A dot product is the *sum* of the products: `sum` instead of `mean`.",
)
ex.mistake(
    "over all leading dimensions",
    {"var(dim=-1)": "var()"},
    hint="Each leading index has a variance of its own: `var(dim=-1)`.",
)
ex.mistake(
    "over the first dimension",
    {"var(dim=-1)": "var(dim=0)"},
    hint="The draws are the last dimension of the dot products, whatever stands before them: `var(dim=-1)`.",
)
ex.mistake(
    "already divided by √d_k",
    {"var(dim=-1)": "div(queries.shape[-1] ** 0.5).var(dim=-1)"},
    hint="The variance of the plain dot product is asked for, without any scale.",
)
ex.mistake(
    "one dimension too many",
    {"var(dim=-1)": "var(dim=-1, keepdim=True)"},
    hint="Each leading index has one number, not a list of one: leave out `keepdim=True`.",
)
ex.mistake(
    "always float32",
    {"queries * keys": "queries.float() * keys.float()"},
    hint="The result has the dtype of the inputs: float64 and half precision stay what they are.",
)

# ---- scaled_dot_product_attention ----------------------------------------------------------------------------

ex = Exercise(
    attention_layer.scaled_dot_product_attention,
    points=3,
    minutes=15,
    returns=("outputs", "weights"),
    hints=(
        "Four steps: scores, scale, softmax, weighted sum of the values. You have written the first one.",
        "d_k is the width of a query: `queries.shape[-1]`. The softmax runs over the keys: the weights of one query "
        "sum to 1.",
        "`weights = torch.softmax(similarity_scores(queries, keys) / d_k**0.5, dim=-1)`, then `weights @ values`.",
    ),
)


def query_by_query(queries, keys, values):
    scale = queries.shape[-1] ** 0.5
    weights = torch.stack([torch.softmax(torch.stack([q.dot(k) for k in keys]) / scale, dim=0) for q in queries])
    return torch.stack([row @ values for row in weights]), weights


sizes = ex.inputs(queries=5, keys=7, d_k=8, d_v=11)
plain = sizes()
# The rows lie far apart: one number that is subtracted from all of them would make all powers of a row 0.
large = case(
    torch.tensor([[1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]),
    torch.tensor([[10000.0, 3.0, 0.0, 0.0], [10002.0, 1.0, 0.0, 0.0]]),
    torch.tensor([[10.0, 0.0, 1.0], [0.0, 20.0, 1.0]]),
).noted("scores of many thousands, above and below zero")

ex.cases(
    "two queries and two keys that you can follow",
    case(
        torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 4.0, 0.0, 0.0]]),
        torch.eye(4)[:2],
        torch.tensor([[10.0, 0.0, 1.0], [0.0, 20.0, 1.0]]),
    )
    .gives(
        (
            torch.tensor([[7.310586, 5.378828, 1.0], [1.192029, 17.615942, 1.0]]),
            torch.tensor([[0.731059, 0.268941], [0.119203, 0.880797]]),
        )
    )
    .noted("d_k 4, so scores [2, 0] and [0, 4] are halved"),
)
ex.cases("5 queries, 7 keys, d_k 8, d_v 11: as one query after the other", plain.gives(query_by_query(*plain.args)))
ex.promises(sizes, "leading", "sizes", "dtypes", "gradients", "device")
ex.cases("large d_k", sizes(d_k=200))
ex.cases("large scores", large)
ex.gradients("gradients of large scores", large.to(torch.float64))

SCORES = "similarity_scores(queries.to(wide), keys.to(wide)) / d_k**0.5"
SOFTMAX = "torch.softmax(scores, dim=-1)"
RETURN = "return outputs.to(values.dtype), weights.to(queries.dtype)"
ex.mistake(
    "no scale",
    {" / d_k**0.5": ""},
    hint="The scores are not divided by √d_k. Divide them before the softmax.",
)
ex.mistake(
    "divided by d_k instead of its square root",
    {"**0.5": ""},
    hint="Divide by √d_k. Dividing by d_k makes the scores too small, and the weights nearly equal.",
)
ex.mistake(
    "multiplied by √d_k",
    {" / d_k**0.5": " * d_k**0.5"},
    hint="The scale makes scores smaller: divide by √d_k.",
)
ex.mistake(
    "divided by a whole number",
    {"d_k**0.5": "int(d_k**0.5)"},
    hint="√d_k is not always a whole number. Leave out `int(…)` and `//`: √8 is 2.83, not 2.",
)
ex.mistake(
    "the root of a float32 tensor",
    {"d_k**0.5": "torch.sqrt(torch.tensor(d_k))"},
    hint="`torch.sqrt(torch.tensor(d_k))` is float32: too few digits for float64 inputs. `d_k**0.5` is exact enough.",
)
ex.mistake(
    "always divided by 2",
    {"d_k**0.5": "2"},
    hint="2 is √d_k only where d_k is 4. Compute it from the shape: `queries.shape[-1] ** 0.5`.",
)
ex.mistake(
    "scaled by the width of the values",
    {"queries.shape[-1]": "values.shape[-1]"},
    hint="The scores are sums over d_k numbers, so d_k counts: the width of queries and keys, not that of the values.",
)
ex.mistake(
    "scaled by the number of keys",
    {"queries.shape[-1]": "keys.shape[-2]"},
    hint="`keys.shape[-2]` is how many keys there are. d_k is how wide one is: `keys.shape[-1]`.",
)
ex.mistake(
    "scaled by the number of queries",
    {"queries.shape[-1]": "queries.shape[-2]"},
    hint="`queries.shape[-2]` is how many queries there are. d_k is how wide one is: `queries.shape[-1]`.",
)
ex.mistake(
    "scaled by the first dimension",
    {"queries.shape[-1]": "queries.shape[0]"},
    hint="`shape[0]`, which is also `len(…)`, is the first dimension. d_k is the last one: `queries.shape[-1]`.",
)
ex.mistake(
    "scaled by the second dimension",
    {"queries.shape[-1]": "queries.shape[1]"},
    hint="`shape[1]` is d_k only if there are no leading dimensions. Count from the end: `queries.shape[-1]`.",
)
ex.mistake(
    "scaled after the softmax",
    {" / d_k**0.5": "", SOFTMAX: f"{SOFTMAX} / d_k**0.5"},
    hint="Now the weights of one query no longer sum to 1. Divide the scores, before the softmax.",
)
ex.mistake(
    "softmax over the queries",
    {"dim=-1": "dim=-2"},
    hint="The weights of one *query* must sum to 1: the softmax runs over the keys, the last dimension.",
)
ex.mistake(
    "`dim=1` in the softmax",
    {"dim=-1": "dim=1"},
    hint="`dim=1` are the keys only if there are no leading dimensions. Count from the end: `dim=-1`.",
)
ex.mistake(
    "`dim=0` in the softmax",
    {"dim=-1": "dim=0"},
    hint="`dim=0` is the first dimension. The softmax runs over the keys, the last dimension: `dim=-1`.",
)
ex.mistake(
    "a softmax without `dim`",
    {"dim=-1": "dim=0 if scores.dim() in (0, 1, 3) else 1"},
    hint="`F.softmax(scores)` without `dim` guesses a dimension. Name the keys, the last one: `dim=-1`.",
)
ex.mistake(
    "keys and values swapped",
    {"keys.to(wide)": "values.to(wide)", "weights @ values": "weights @ keys"},
    hint="The queries are compared with the *keys*, and the *values* are summed. You have them the other way round.",
)
ex.mistake(
    "the keys are summed",
    {"weights @ values": "weights @ keys"},
    hint="The weights are right, but the output is the weighted sum of the *values*.",
)
ex.mistake(
    "no softmax",
    {SOFTMAX: "scores"},
    hint="Scores are not weights: they can be negative, and do not sum to 1. Take the softmax over the keys.",
)
ex.mistake(
    "weights not normalised",
    {SOFTMAX: "torch.exp(scores)"},
    hint="exp alone is not a softmax: divide by the sum over the keys, so that the weights of a query sum to 1.",
)
ex.mistake(
    "a softmax that overflows",
    {SOFTMAX: "torch.exp(scores) / torch.exp(scores).sum(dim=-1, keepdim=True)"},
    hint="exp of a large score is infinite (lesson 00). Use `torch.softmax`, or subtract the largest score first.",
)
ex.mistake(
    "one largest score for the whole tensor",
    {SOFTMAX: "torch.exp(scores - scores.max()) / torch.exp(scores - scores.max()).sum(dim=-1, keepdim=True)"},
    hint="Subtract from each row its own largest score, or all powers of a row can become 0 (lesson 00). "
    "`torch.softmax` does that.",
)
ex.mistake(
    "divided by the sum over all scores",
    {SOFTMAX: "torch.exp(scores) / torch.exp(scores).sum()"},
    hint="`x.sum()` adds the whole tensor. Each query has its own sum, over its keys: `torch.softmax(scores, dim=-1)`.",
)
ex.mistake(
    "the sum without `keepdim`",
    {SOFTMAX: "torch.exp(scores) / torch.exp(scores).sum(dim=-1)"},
    hint="Without `keepdim=True` the sums do not stand beside their rows. `torch.softmax(scores, dim=-1)` is simpler.",
)
ex.mistake(
    "scores returned as weights",
    {RETURN: "return outputs.to(values.dtype), scores.to(queries.dtype)"},
    hint="The second result is the weights: what comes out of the softmax.",
)
ex.mistake(
    "only the outputs",
    {RETURN: "return outputs.to(values.dtype)"},
    hint="Return both, outputs first: `return weights @ values, weights`.",
)
ex.mistake(
    "weights first",
    {RETURN: "return weights.to(queries.dtype), outputs.to(values.dtype)"},
    hint="The order is (outputs, weights).",
)
ex.mistake(
    "all dimensions reversed",
    {SCORES: "queries.to(wide) @ keys.to(wide).permute(*reversed(range(keys.dim()))) / d_k**0.5"},
    hint="`.T` also moves the leading dimensions. Swap the last two only: `transpose(-2, -1)`.",
)
ex.mistake(
    "`transpose(1, 2)`",
    {SCORES: "queries.to(wide) @ keys.to(wide).transpose(1, 2) / d_k**0.5"},
    hint="1 and 2 are the last two dimensions only if there is exactly one leading dimension. Count from the end: "
    "`transpose(-2, -1)`.",
)
ex.mistake(
    "the keys are not turned",
    {SCORES: "queries.to(wide) @ keys.to(wide) / d_k**0.5"},
    hint="`queries @ keys` takes the *columns* of the keys. A key is a row: use your `similarity_scores`.",
)
ex.mistake(
    "always float32",
    {
        "torch.promote_types(queries.dtype, torch.float32)": "torch.float32",
        RETURN: "return outputs, weights",
    },
    hint="The results have the dtype of the inputs: float64 and half precision stay what they are.",
)
ex.mistake(
    "no gradient through the weights",
    {SOFTMAX: f"{SOFTMAX}.detach()"},
    hint="`detach`, `item` and `torch.tensor(...)` cut the gradient. Queries and keys can then learn nothing.",
)
ex.mistake(
    "the returned weights are cut off",
    {RETURN: "return outputs.to(values.dtype), weights.detach().to(queries.dtype)"},
    hint="The outputs are right, but the returned weights let no gradient through. Return them without `detach`.",
)

# ---- cross_attention -----------------------------------------------------------------------------------------

ex = Exercise(
    attention_layer.cross_attention,
    points=2,
    minutes=10,
    returns=("outputs", "weights"),
    hints=(
        "Three projections, then the function that you have just written.",
        "Vectors are rows, so the projected queries are `queries @ w_q`. What do the data vectors give?",
        "Keys are `data @ w_k`, values are `data @ w_v`. Give all three to `scaled_dot_product_attention`.",
    ),
)


def vector_by_vector(queries, data, w_q, w_k, w_v):
    keys, values = torch.stack([x @ w_k for x in data]), torch.stack([x @ w_v for x in data])
    weights = torch.stack([torch.softmax(keys @ (q @ w_q) / w_q.shape[-1] ** 0.5, dim=0) for q in queries])
    return weights @ values, weights


sizes = ex.inputs(queries=5, data=7, d_query=6, d_data=10, d_k=8, d_v=11)
plain = sizes()
ALL_FOUR = dict.fromkeys(("queries", "data", "d_query", "d_data", "d_k", "d_v"), 4)

ex.cases(
    "one query and two data vectors that you can follow",
    case(
        torch.tensor([[1.0, 0.0, 1.0]]),
        torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
        torch.tensor([[2.0], [5.0], [1.0]]),
        torch.tensor([[1.0], [0.0]]),
        torch.tensor([[10.0, 0.0], [0.0, 10.0]]),
    )
    .gives((torch.tensor([[9.525741, 0.474259]]), torch.tensor([[0.952574, 0.047426]])))
    .noted("the projected query is [3], the keys are [1] and [0]"),
)
ex.cases(
    "5 queries of width 6, 7 data vectors of width 10, d_k 8, d_v 11: as one vector after the other",
    plain.gives(vector_by_vector(*plain.args)),
)
ex.promises(sizes, "leading", "sizes", "dtypes", "gradients", "device")
ex.cases(
    "large scores",
    case(
        *(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]), torch.tensor([[100.0, 3.0], [100.5, 1.0]])),
        *(100 * torch.eye(2, 4), torch.eye(2, 4), torch.eye(2)),
    ).noted("scores of many thousands, above and below zero"),
)

ATTENTION = "scaled_dot_product_attention(queries @ w_q, data @ w_k, data @ w_v)"
ex.mistake(
    "queries not projected", {"queries @ w_q": "queries"}, hint="The queries are projected too: `queries @ w_q`."
)
ex.mistake("keys not projected", {"data @ w_k": "data"}, hint="The data vectors are not yet keys: `data @ w_k` are.")
ex.mistake(
    "values not projected", {"data @ w_v": "data"}, hint="The data vectors are not yet values: `data @ w_v` are."
)
ex.mistake(
    "nothing projected",
    {ATTENTION: "scaled_dot_product_attention(queries, data, data)"},
    hint="The matrices are not used. The queries are `queries @ w_q`, the keys `data @ w_k`, the values `data @ w_v`.",
)
ex.mistake(
    "keys and values swapped",
    {"data @ w_k, data @ w_v": "data @ w_v, data @ w_k"},
    hint="`w_k` makes the keys, which are compared; `w_v` the values, which are summed.",
)
ex.mistake(
    "the keys are the values",
    {"data @ w_v": "data @ w_k"},
    hint="The output is a sum of values, `data @ w_v`. Yours is a sum of keys.",
)
ex.mistake(
    "the matrices of queries and keys swapped",
    {"queries @ w_q, data @ w_k": "queries @ w_k, data @ w_q"},
    hint="`w_q` belongs to the queries, `w_k` to the data vectors. You have them the other way round.",
)
ex.mistake(
    "the same matrix for queries and keys",
    {"data @ w_k": "data @ w_q"},
    hint="The keys have a matrix of their own: `data @ w_k`.",
)
ex.mistake(
    "the matrices transposed",
    {ATTENTION: "scaled_dot_product_attention(queries @ w_q.T, data @ w_k.T, data @ w_v.T)"},
    hint="`nn.Linear` keeps its matrix transposed; here vectors are rows and `x @ w` is all. No `.T` is needed.",
)
ex.mistake(
    "the matrices stand on the left",
    {ATTENTION: "scaled_dot_product_attention(w_q @ queries, w_k @ data, w_v @ data)"},
    hint="Vectors are rows here, so the matrix stands on the right: `queries @ w_q`.",
)
ex.mistake(
    "the matrices stand on the left, transposed",
    {ATTENTION: "scaled_dot_product_attention(w_q.T @ queries, w_k.T @ data, w_v.T @ data)"},
    hint="Vectors are rows here, so the matrix stands on the right: `queries @ w_q`.",
)
ex.mistake(
    "the queries make the values",
    {"data @ w_v": "queries @ w_v"},
    hint="Keys *and* values come from the data vectors. The queries only ask.",
)
ex.mistake(
    "the queries make the keys",
    {"data @ w_k": "queries @ w_k"},
    hint="Keys *and* values come from the data vectors. The queries only ask.",
)
ex.mistake(
    "the queries make keys and values",
    {"data @ w_k, data @ w_v": "queries @ w_k, queries @ w_v"},
    hint="Keys *and* values come from the data vectors. The queries only ask.",
)
ex.mistake(
    "the data vectors ask",
    {"queries @ w_q": "data @ w_q"},
    hint="The query vectors ask, not the data vectors: `queries @ w_q`.",
)
ex.mistake(
    "queries and data swapped",
    {ATTENTION: "scaled_dot_product_attention(data @ w_q, queries @ w_k, queries @ w_v)"},
    hint="The query vectors ask, and the data vectors give keys and values. You have them the other way round.",
)
ex.mistake(
    "no scale",
    {"queries @ w_q": "queries @ w_q * w_q.shape[-1] ** 0.5"},
    hint="The scores are not divided by √d_k. `scaled_dot_product_attention` does it for you.",
)
ex.mistake(
    "divided by d_k instead of its square root",
    {"queries @ w_q": "queries @ w_q / w_q.shape[-1] ** 0.5"},
    hint="All in all your scores are divided by d_k. They must be divided by √d_k once, and "
    "`scaled_dot_product_attention` does that for you.",
)
ex.mistake(
    "divided by a whole number",
    {"queries @ w_q": "queries @ w_q * (w_q.shape[-1] ** 0.5 / int(w_q.shape[-1] ** 0.5))"},
    hint="√d_k is not always a whole number. Leave out `int(…)` and `//`: √8 is 2.83, not 2.",
)
ex.mistake(
    "scaled by the width of the data vectors",
    {"queries @ w_q": "queries @ w_q * (w_q.shape[-1] / data.shape[-1]) ** 0.5"},
    hint="The scores are sums over d_k numbers, so the scale is √d_k: the width *after* the projection.",
)
ex.mistake(
    "scaled by the width of the unprojected queries",
    {"queries @ w_q": "queries @ w_q * (w_q.shape[-1] / queries.shape[-1]) ** 0.5"},
    hint="d_k is the width of the *projected* queries, `w_q.shape[-1]`.",
)
ex.mistake(
    "scaled by the width of the values",
    {"queries @ w_q": "queries @ w_q * (w_q.shape[-1] / w_v.shape[-1]) ** 0.5"},
    hint="The scores are sums over d_k numbers, so d_k counts: the width of projected queries and keys, not that of "
    "the values.",
)
BY_HAND = (
    "scores = similarity_scores(queries @ w_q, data @ w_k) / w_q.shape[-1] ** 0.5\n"
    "    weights = torch.{}\n"
    "    return weights @ (data @ w_v), weights"
)
ex.mistake(
    "softmax over the queries",
    {f"return {ATTENTION}": BY_HAND.format("softmax(scores, dim=-2)")},
    hint="The weights of one query sum to 1: softmax over the data vectors.",
)
ex.mistake(
    "`dim=1` in the softmax",
    {f"return {ATTENTION}": BY_HAND.format("softmax(scores, dim=1)")},
    hint="`dim=1` are the data vectors only if there are no leading dimensions. Count from the end: `dim=-1`.",
)
ex.mistake(
    "a softmax that overflows",
    {f"return {ATTENTION}": BY_HAND.format("exp(scores) / torch.exp(scores).sum(dim=-1, keepdim=True)")},
    hint="exp of a large score is infinite (lesson 00). Use `scaled_dot_product_attention`, or `torch.softmax`.",
)
ex.mistake(
    "all dimensions reversed",
    {
        f"return {ATTENTION}": "k = data @ w_k\n    scores = queries @ w_q @ k.permute(*reversed(range(k.dim())))\n"
        "    weights = torch.softmax(scores / w_q.shape[-1] ** 0.5, dim=-1)\n    return weights @ (data @ w_v), weights"
    },
    hint="`.T` also moves the leading dimensions. Swap the last two only: `transpose(-2, -1)`.",
)
ex.mistake(
    "only the outputs",
    {ATTENTION: f"{ATTENTION}[0]"},
    hint="Return both, outputs and weights: what `scaled_dot_product_attention` returns.",
)
ex.mistake("weights first", {ATTENTION: f"{ATTENTION}[::-1]"}, hint="The order is (outputs, weights).")
ex.mistake(
    "always float32",
    {ATTENTION: "scaled_dot_product_attention(*(x.float() for x in (queries @ w_q, data @ w_k, data @ w_v)))"},
    hint="The results have the dtype of the inputs: float64 and half precision stay what they are.",
)
