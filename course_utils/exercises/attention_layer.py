"""Lesson 03's exercises: scores, how they vary, attention with its scale, and the layer with its projections."""

import torch

from course_utils.exercises import Exercise, expect, gradients
from course_utils.lessons import attention_layer
from course_utils.lessons.attention_layer import scaled_dot_product_attention, similarity_scores

HALF = (torch.float16, torch.bfloat16)


def _random(rng, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype)


def _gradients(function, values):
    """The gradient of the sum of squares of the first result, for each input."""

    def total(*leaves):
        result = function(*leaves)
        return (result[0] if isinstance(result, tuple) else result).square().sum()

    return gradients(total, values)


def _same_pair(got, wanted, where):
    """Outputs and weights, in this order, as a tuple."""
    expect(type(got).__name__, "tuple", f"{where}: the kind of the result (outputs, weights)")
    expect(len(got), 2, f"{where}: the number of results (outputs, weights)")
    expect(got[1], wanted[1], f"{where}: the weights")
    expect(got[0], wanted[0], f"{where}: the outputs")


# ---- similarity_scores ---------------------------------------------------------------------------------------

ex = Exercise(
    "similarity_scores",
    reference=attention_layer.similarity_scores,
    points=1,
    seconds=5,
    minutes=5,
    hints=(
        "One matrix product makes all dot products at once. Which dimension must be the inner one, the one that is "
        "summed over?",
        "Queries are (queries, d_k), keys must become (d_k, keys). Only the last two dimensions change places.",
        "`keys.transpose(-2, -1)` swaps the last two dimensions, whatever stands before them. `@` does the rest.",
    ),
)


def _queries_and_keys(rng, *leading, queries=5, keys=7, d_k=4, dtype=torch.float32):
    return _random(rng, *leading, queries, d_k, dtype=dtype), _random(rng, *leading, keys, d_k, dtype=dtype)


@ex.check("two queries and three keys that you can follow")
def _(answer, rng):
    queries, keys = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]])
    wanted = torch.tensor([[1.0, 2.0, 0.0], [3.0, 0.0, 6.0]])
    expect(answer(queries, keys), wanted, "queries [1, 2], [3, 0]; keys [1, 0], [0, 1], [2, -1]")


@ex.check("5 queries, 7 keys, d_k 4")
def _(answer, rng):
    queries, keys = _queries_and_keys(rng)
    wanted = torch.stack([torch.stack([q.dot(k) for k in keys]) for q in queries])
    expect(answer(queries, keys), wanted, "queries (5, 4), keys (7, 4)")


@ex.check("one and two leading dimensions")
def _(answer, rng):
    for leading in ((3,), (2, 3)):
        values = _queries_and_keys(rng, *leading)
        expect(answer(*values), similarity_scores(*values), f"leading dimensions {leading}")


@ex.check("as many queries as keys and numbers in a key; one query, one key")
def _(answer, rng):
    for sizes in ({"queries": 4, "keys": 4}, {"queries": 1, "keys": 1}):
        values = _queries_and_keys(rng, 2, **sizes)
        expect(answer(*values), similarity_scores(*values), f"leading dimension 2, {sizes}, d_k 4")


@ex.check("float64, float16 and bfloat16")
def _(answer, rng):
    for dtype in (torch.float64, *HALF):
        values = _queries_and_keys(rng, 2, dtype=dtype)
        expect(answer(*values), similarity_scores(*values), f"{dtype}")


@ex.check("gradients reach queries and keys")
def _(answer, rng):
    values = _queries_and_keys(rng, 2, dtype=torch.float64)
    expect(answer(*values), similarity_scores(*values), "the scores themselves")
    expect(_gradients(answer, values), _gradients(similarity_scores, values), "the gradients of queries and keys")


@ex.mistake(
    "all dimensions turned round",
    hint="`.T` or `transpose(0, 1)` also moves the leading dimensions. Swap the last two: `transpose(-2, -1)`.",
)
def _(queries, keys):
    return queries @ keys.permute(*reversed(range(keys.dim())))


@ex.mistake(
    "the table lies on its side",
    hint="One row per query and one column per key is asked for. Yours has one row per key.",
)
def _(queries, keys):
    return keys @ queries.transpose(-2, -1)


@ex.mistake("already divided by √d_k", hint="Here the plain dot product is asked for. The division comes later.")
def _(queries, keys):
    return similarity_scores(queries, keys) / queries.shape[-1] ** 0.5


@ex.mistake(
    "the cosine of the angle",
    hint="The dot product is asked for: do not divide by the lengths of the vectors.",
)
def _(queries, keys):
    return torch.cosine_similarity(queries.unsqueeze(-2), keys.unsqueeze(-3), dim=-1)


@ex.mistake(
    "products without their sum", hint="A dot product also adds: sum the products over d_k, the last dimension."
)
def _(queries, keys):
    return queries.unsqueeze(-2) * keys.unsqueeze(-3)


@ex.mistake("softmax of the scores", hint="Only the scores are asked for here. The softmax comes after them.")
def _(queries, keys):
    return torch.softmax(similarity_scores(queries, keys), dim=-1)


# ---- score_variance ------------------------------------------------------------------------------------------

ex = Exercise(
    "score_variance",
    reference=attention_layer.score_variance,
    points=1,
    seconds=5,
    minutes=10,
    hints=(
        "Two steps: first one dot product for each draw, then the variance of these numbers.",
        "Query i meets key i only. `queries * keys` multiplies number by number; which dimension is summed?",
        "`(queries * keys).sum(dim=-1)` has one number per draw. `.var(dim=-1)` divides by (draws - 1) by itself.",
    ),
)


def _draws(rng, *leading, draws=6, d_k=4, mean=0.0, dtype=torch.float32):
    return tuple(_random(rng, *leading, draws, d_k).add(mean).to(dtype) for _ in range(2))


@ex.check("three draws that you can follow")
def _(answer, rng):
    queries, keys = (
        torch.tensor([[1.0, 2.0], [3.0, 0.0], [1.0, 1.0]]),
        torch.tensor([[1.0, 0.0], [1.0, 1.0], [2.0, 3.0]]),
    )
    expect(answer(queries, keys), torch.tensor(4.0), "dot products 1, 3 and 5: (4 + 0 + 4) / (3 - 1)")


@ex.check("6 draws, d_k 4")
def _(answer, rng):
    queries, keys = _draws(rng)
    scores = [q.dot(k) for q, k in zip(queries, keys, strict=True)]
    mean = sum(scores) / 6
    expect(answer(queries, keys), sum((s - mean) ** 2 for s in scores) / 5, "queries (6, 4), keys (6, 4)")


@ex.check("numbers around 1 instead of 0")
def _(answer, rng):
    values = _draws(rng, mean=1.0)
    expect(answer(*values), attention_layer.score_variance(*values), "draws whose dot products are not 0 on average")


@ex.check("one and two leading dimensions; as many draws as d_k; two draws")
def _(answer, rng):
    for leading, draws in [((3,), 6), ((2, 3), 6), ((3,), 4), ((3,), 2)]:
        values = _draws(rng, *leading, draws=draws)
        wanted = attention_layer.score_variance(*values)
        expect(answer(*values), wanted, f"leading dimensions {leading}, {draws} draws, d_k 4")


@ex.check("float64 and float16")
def _(answer, rng):
    for dtype in (torch.float64, torch.float16):
        values = _draws(rng, 2, dtype=dtype)
        expect(answer(*values), attention_layer.score_variance(*values), f"{dtype}")


@ex.check("larger d_k, larger variance")
def _(answer, rng):
    for d_k in (16, 64):
        values = _draws(rng, draws=500, d_k=d_k)
        expect(answer(*values), attention_layer.score_variance(*values), f"500 draws, d_k {d_k}")


def _paired(queries, keys):
    return (queries * keys).sum(dim=-1)


@ex.mistake("the standard deviation", hint="That is the square root of the variance. Leave the root out: `var`.")
def _(queries, keys):
    return _paired(queries, keys).std(dim=-1)


@ex.mistake("divided by the number of draws", hint="Divide the sum of squares by (draws - 1), as `torch.var` does.")
def _(queries, keys):
    return _paired(queries, keys).var(dim=-1, correction=0)


@ex.mistake(
    "every query with every key",
    hint="Query i meets key i only: draws dot products, not draws × draws. Multiply number by number, then sum.",
)
def _(queries, keys):
    return similarity_scores(queries, keys).flatten(-2).var(dim=-1)


@ex.mistake(
    "the mean of the squares",
    hint="A variance measures distances from the mean. Subtract the mean of the dot products first.",
)
def _(queries, keys):
    return _paired(queries, keys).square().mean(dim=-1)


@ex.mistake(
    "the products are not summed",
    hint="You took the variance of single products. A dot product is their sum over d_k; take that first.",
)
def _(queries, keys):
    return (queries * keys).flatten(-2).var(dim=-1)


@ex.mistake("over all leading dimensions", hint="Each leading index has a variance of its own: `var(dim=-1)`.")
def _(queries, keys):
    return _paired(queries, keys).var()


@ex.mistake("already divided by √d_k", hint="The variance of the plain dot product is asked for, without any scale.")
def _(queries, keys):
    return (_paired(queries, keys) / queries.shape[-1] ** 0.5).var(dim=-1)


# ---- scaled_dot_product_attention ----------------------------------------------------------------------------

ex = Exercise(
    "scaled_dot_product_attention",
    reference=attention_layer.scaled_dot_product_attention,
    points=3,
    seconds=10,
    minutes=15,
    hints=(
        "Four steps: scores, scale, softmax, weighted sum of the values. You have written the first one.",
        "d_k is the width of a query: `queries.shape[-1]`. The softmax runs over the keys: the weights of one query "
        "sum to 1.",
        "`weights = torch.softmax(similarity_scores(queries, keys) / d_k**0.5, dim=-1)`, then `weights @ values`.",
    ),
)


def _attention_inputs(rng, *leading, queries=5, keys=7, d_k=4, d_v=3, dtype=torch.float32):
    shapes = (queries, d_k), (keys, d_k), (keys, d_v)
    return tuple(_random(rng, *leading, *shape, dtype=dtype) for shape in shapes)


@ex.check("two queries and two keys that you can follow")
def _(answer, rng):
    queries, keys = torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 4.0, 0.0, 0.0]]), torch.eye(4)[:2]
    values = torch.tensor([[10.0, 0.0, 1.0], [0.0, 20.0, 1.0]])
    weights = torch.tensor([[0.731059, 0.268941], [0.119203, 0.880797]])
    outputs = torch.tensor([[7.310586, 5.378828, 1.0], [1.192029, 17.615942, 1.0]])
    _same_pair(answer(queries, keys, values), (outputs, weights), "d_k 4, so scores [2, 0] and [0, 4] are halved")


@ex.check("5 queries, 7 keys, d_k 4, d_v 3")
def _(answer, rng):
    queries, keys, values = _attention_inputs(rng)
    weights = torch.stack([torch.softmax(torch.stack([q.dot(k) for k in keys]) / 2, dim=0) for q in queries])
    outputs = torch.stack([sum(w * v for w, v in zip(row, values, strict=True)) for row in weights])
    _same_pair(answer(queries, keys, values), (outputs, weights), "queries (5, 4), keys (7, 4), values (7, 3)")


@ex.check("one and two leading dimensions")
def _(answer, rng):
    for leading in ((3,), (2, 3)):
        values = _attention_inputs(rng, *leading)
        _same_pair(answer(*values), scaled_dot_product_attention(*values), f"leading dimensions {leading}")


@ex.check("all widths and numbers equal; one query, one key")
def _(answer, rng):
    for size in (4, 1):
        values = _attention_inputs(rng, 2, queries=size, keys=size, d_k=size, d_v=size)
        _same_pair(answer(*values), scaled_dot_product_attention(*values), f"queries, keys, d_k and d_v are {size}")


@ex.check("large d_k")
def _(answer, rng):
    values = _attention_inputs(rng, d_k=256)
    _same_pair(answer(*values), scaled_dot_product_attention(*values), "d_k 256")


@ex.check("large scores")
def _(answer, rng):
    queries, keys, values = _attention_inputs(rng)
    inputs = 100 * queries, 100 * keys, values
    _same_pair(answer(*inputs), scaled_dot_product_attention(*inputs), "scores of many thousands")


@ex.check("float64, float16 and bfloat16")
def _(answer, rng):
    for dtype in (torch.float64, *HALF):
        values = _attention_inputs(rng, 2, dtype=dtype)
        _same_pair(answer(*values), scaled_dot_product_attention(*values), f"{dtype}")


@ex.check("gradients reach queries, keys and values")
def _(answer, rng):
    values = _attention_inputs(rng, 2, dtype=torch.float64)
    _same_pair(answer(*values), scaled_dot_product_attention(*values), "leading dimension 2, float64")
    wanted = _gradients(scaled_dot_product_attention, values)
    expect(_gradients(answer, values), wanted, "the gradients of queries, keys and values")


def _attend(scores, values):
    weights = torch.softmax(scores, dim=-1)
    return weights @ values, weights


def _plain(queries, keys, values):
    """The formula without a look at the shapes: where they do not fit, PyTorch raises its own error."""
    return _attend(queries @ keys.transpose(-2, -1) / queries.shape[-1] ** 0.5, values)


def _mistake_in_shapes(name, *, hint):
    """A mistake that raises. The error is PyTorch's own, or that of the course's functions where they stand in."""

    def add(wrong):
        ex.mistake(name, hint=hint)(lambda *inputs: wrong(_plain, *inputs))
        named = f"{hint} The error says which shapes met."
        ex.mistake(f"{name} (the shapes do not fit)", hint=named)(
            lambda *inputs: wrong(scaled_dot_product_attention, *inputs)
        )

    return add


@ex.mistake("no scale", hint="The scores are not divided by √d_k. Divide them before the softmax.")
def _(queries, keys, values):
    return _attend(similarity_scores(queries, keys), values)


@ex.mistake(
    "divided by d_k instead of its square root",
    hint="Divide by √d_k. Dividing by d_k makes the scores too small, and the weights nearly equal.",
)
def _(queries, keys, values):
    return _attend(similarity_scores(queries, keys) / queries.shape[-1], values)


@ex.mistake("multiplied by √d_k", hint="The scale makes scores smaller: divide by √d_k.")
def _(queries, keys, values):
    return _attend(similarity_scores(queries, keys) * queries.shape[-1] ** 0.5, values)


@ex.mistake(
    "scaled by the width of the values",
    hint="The scores are sums over d_k numbers, so d_k counts: the width of queries and keys, not that of the values.",
)
def _(queries, keys, values):
    return _attend(similarity_scores(queries, keys) / values.shape[-1] ** 0.5, values)


@ex.mistake(
    "scaled by the number of keys",
    hint="`keys.shape[-2]` is how many keys there are. d_k is how wide one is: `keys.shape[-1]`.",
)
def _(queries, keys, values):
    return _attend(similarity_scores(queries, keys) / keys.shape[-2] ** 0.5, values)


@ex.mistake(
    "scaled after the softmax",
    hint="Now the weights of one query no longer sum to 1. Divide the scores, before the softmax.",
)
def _(queries, keys, values):
    weights = torch.softmax(similarity_scores(queries, keys), dim=-1) / queries.shape[-1] ** 0.5
    return weights @ values, weights


@ex.mistake(
    "softmax over the queries",
    hint="The weights of one *query* must sum to 1: the softmax runs over the keys, the last dimension.",
)
def _(queries, keys, values):
    weights = torch.softmax(similarity_scores(queries, keys) / queries.shape[-1] ** 0.5, dim=-2)
    return weights @ values, weights


@_mistake_in_shapes(
    "keys and values swapped",
    hint="The queries are compared with the *keys*, and the *values* are summed. You have them the other way round.",
)
def _(attend, queries, keys, values):
    return attend(queries, values, keys)


@ex.mistake("the keys are summed", hint="The weights are right, but the output is the weighted sum of the *values*.")
def _(queries, keys, values):
    return _attend(similarity_scores(queries, keys) / queries.shape[-1] ** 0.5, keys)


@ex.mistake(
    "weights not normalised",
    hint="exp alone is not a softmax: divide by the sum over the keys, so that the weights of a query sum to 1.",
)
def _(queries, keys, values):
    weights = torch.exp(similarity_scores(queries, keys) / queries.shape[-1] ** 0.5)
    return weights @ values, weights


@ex.mistake(
    "a softmax that overflows",
    hint="exp of a large score is infinite (lesson 00). Use `torch.softmax`, or subtract the largest score first.",
)
def _(queries, keys, values):
    powers = torch.exp(similarity_scores(queries, keys) / queries.shape[-1] ** 0.5)
    weights = powers / powers.sum(dim=-1, keepdim=True)
    return weights @ values, weights


@ex.mistake("scores returned as weights", hint="The second result is the weights: what comes out of the softmax.")
def _(queries, keys, values):
    scores = similarity_scores(queries, keys) / queries.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1) @ values, scores


@ex.mistake("only the outputs", hint="Return both, outputs first: `return weights @ values, weights`.")
def _(queries, keys, values):
    return scaled_dot_product_attention(queries, keys, values)[0]


@ex.mistake("weights first", hint="The order is (outputs, weights).")
def _(queries, keys, values):
    return scaled_dot_product_attention(queries, keys, values)[::-1]


@ex.mistake(
    "all dimensions turned round",
    hint="`.T` also moves the leading dimensions. Swap the last two only: `transpose(-2, -1)`.",
)
def _(queries, keys, values):
    turned = keys.permute(*reversed(range(keys.dim())))
    return _attend(queries @ turned / queries.shape[-1] ** 0.5, values)


@ex.mistake(
    "no gradient through the weights",
    hint="`detach`, `item` and `torch.tensor(...)` cut the gradient. Queries and keys can then learn nothing.",
)
def _(queries, keys, values):
    weights = torch.softmax(similarity_scores(queries, keys) / queries.shape[-1] ** 0.5, dim=-1).detach()
    return weights @ values, weights


# ---- cross_attention -----------------------------------------------------------------------------------------

ex = Exercise(
    "cross_attention",
    reference=attention_layer.cross_attention,
    points=2,
    seconds=10,
    minutes=10,
    hints=(
        "Three projections, then the function that you have just written.",
        "Vectors are rows, so the projected queries are `queries @ w_q`. What do the data vectors give?",
        "Keys are `data @ w_k`, values are `data @ w_v`. Give all three to `scaled_dot_product_attention`.",
    ),
)


def _layer_inputs(rng, *leading, queries=5, data=7, d_query=3, d_data=6, d_k=4, d_v=2, dtype=torch.float32):
    vectors = (*leading, queries, d_query), (*leading, data, d_data)
    return tuple(
        _random(rng, *shape, dtype=dtype) for shape in (*vectors, (d_query, d_k), (d_data, d_k), (d_data, d_v))
    )


@ex.check("one query and two data vectors that you can follow")
def _(answer, rng):
    queries, data = torch.tensor([[1.0, 0.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    w_q, w_k = torch.tensor([[2.0], [5.0], [1.0]]), torch.tensor([[1.0], [0.0]])
    w_v = torch.tensor([[10.0, 0.0], [0.0, 10.0]])
    wanted = torch.tensor([[9.525741, 0.474259]]), torch.tensor([[0.952574, 0.047426]])
    _same_pair(answer(queries, data, w_q, w_k, w_v), wanted, "the projected query is [3], the keys are [1] and [0]")


@ex.check("5 queries of width 3, 7 data vectors of width 6, d_k 4, d_v 2")
def _(answer, rng):
    queries, data, w_q, w_k, w_v = inputs = _layer_inputs(rng)
    keys, values = torch.stack([x @ w_k for x in data]), torch.stack([x @ w_v for x in data])
    weights = torch.stack([torch.softmax(keys @ (q @ w_q) / 2, dim=0) for q in queries])
    _same_pair(answer(*inputs), (weights @ values, weights), "queries (5, 3), data (7, 6), outputs (5, 2)")


@ex.check("one and two leading dimensions")
def _(answer, rng):
    for leading in ((3,), (2, 3)):
        inputs = _layer_inputs(rng, *leading)
        _same_pair(answer(*inputs), attention_layer.cross_attention(*inputs), f"leading dimensions {leading}")


@ex.check("all widths and numbers equal; one of each")
def _(answer, rng):
    for size in (4, 1):
        names = ("queries", "data", "d_query", "d_data", "d_k", "d_v")
        inputs = _layer_inputs(rng, 2, **dict.fromkeys(names, size))
        _same_pair(answer(*inputs), attention_layer.cross_attention(*inputs), f"all sizes are {size}")


@ex.check("float64, float16 and bfloat16")
def _(answer, rng):
    for dtype in (torch.float64, *HALF):
        inputs = [x / 2 for x in _layer_inputs(rng, 2, dtype=dtype)]
        _same_pair(answer(*inputs), attention_layer.cross_attention(*inputs), f"{dtype}")


@ex.check("gradients reach queries, data and all three matrices")
def _(answer, rng):
    inputs = _layer_inputs(rng, 2, dtype=torch.float64)
    _same_pair(answer(*inputs), attention_layer.cross_attention(*inputs), "leading dimension 2, float64")
    wanted = _gradients(attention_layer.cross_attention, inputs)
    expect(_gradients(answer, inputs), wanted, "the gradients of queries, data, w_q, w_k and w_v")


@_mistake_in_shapes("queries not projected", hint="The queries are projected too: `queries @ w_q`.")
def _(attend, queries, data, w_q, w_k, w_v):
    return attend(queries, data @ w_k, data @ w_v)


@_mistake_in_shapes("keys not projected", hint="The data vectors are not yet keys: `data @ w_k` are.")
def _(attend, queries, data, w_q, w_k, w_v):
    return attend(queries @ w_q, data, data @ w_v)


@ex.mistake("values not projected", hint="The data vectors are not yet values: `data @ w_v` are.")
def _(queries, data, w_q, w_k, w_v):
    return scaled_dot_product_attention(queries @ w_q, data @ w_k, data)


@_mistake_in_shapes(
    "keys and values swapped", hint="`w_k` makes the keys, which are compared; `w_v` the values, which are summed."
)
def _(attend, queries, data, w_q, w_k, w_v):
    return attend(queries @ w_q, data @ w_v, data @ w_k)


@ex.mistake("the keys are the values", hint="The output is a sum of values, `data @ w_v`. Yours is a sum of keys.")
def _(queries, data, w_q, w_k, w_v):
    return scaled_dot_product_attention(queries @ w_q, data @ w_k, data @ w_k)


@ex.mistake(
    "the matrices turned round",
    hint="`nn.Linear` keeps its matrix turned round; here vectors are rows and `x @ w` is all. No `.T` is needed.",
)
def _(queries, data, w_q, w_k, w_v):
    return scaled_dot_product_attention(queries @ w_q.T, data @ w_k.T, data @ w_v.T)


@ex.mistake(
    "the queries make the values",
    hint="Keys *and* values come from the data vectors. The queries only ask.",
)
def _(queries, data, w_q, w_k, w_v):
    return scaled_dot_product_attention(queries @ w_q, data @ w_k, queries @ w_v)


@ex.mistake("no scale", hint="The scores are not divided by √d_k. `scaled_dot_product_attention` does it for you.")
def _(queries, data, w_q, w_k, w_v):
    return _attend(similarity_scores(queries @ w_q, data @ w_k), data @ w_v)


@ex.mistake(
    "scaled by the width of the data vectors",
    hint="The scores are sums over d_k numbers, so the scale is √d_k: the width *after* the projection.",
)
def _(queries, data, w_q, w_k, w_v):
    return _attend(similarity_scores(queries @ w_q, data @ w_k) / data.shape[-1] ** 0.5, data @ w_v)


@ex.mistake(
    "scaled by the width of the unprojected queries",
    hint="d_k is the width of the *projected* queries, `w_q.shape[-1]`.",
)
def _(queries, data, w_q, w_k, w_v):
    return _attend(similarity_scores(queries @ w_q, data @ w_k) / queries.shape[-1] ** 0.5, data @ w_v)


@ex.mistake("softmax over the queries", hint="The weights of one query sum to 1: softmax over the data vectors.")
def _(queries, data, w_q, w_k, w_v):
    weights = torch.softmax(similarity_scores(queries @ w_q, data @ w_k) / w_q.shape[-1] ** 0.5, dim=-2)
    return weights @ (data @ w_v), weights


@ex.mistake("only the outputs", hint="Return both, outputs and weights: what `scaled_dot_product_attention` returns.")
def _(queries, data, w_q, w_k, w_v):
    return scaled_dot_product_attention(queries @ w_q, data @ w_k, data @ w_v)[0]
