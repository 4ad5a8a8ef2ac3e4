"""Lesson 04's exercises: self-attention, another order of the tokens, sinusoidal positions and rotary ones."""

import math

import torch
import torch.nn.functional as F

from course_utils.exercises import Exercise, expect, gradients
from course_utils.lessons import self_attention as lesson
from course_utils.lessons.attention_layer import scaled_dot_product_attention

HALF = (torch.float16, torch.bfloat16)

# ---- self_attention ------------------------------------------------------------------------------------------

ex = Exercise(
    "self_attention",
    reference=lesson.self_attention,
    points=1,
    seconds=5,
    minutes=10,
    hints=(
        "Everything comes from `x`. First make three matrices out of it, each with its own weights. "
        "Then use a function of lesson 03.",
        "Queries, keys and values are `x @ w_q`, `x @ w_k` and `x @ w_v`. Which lesson 03 function takes these three?",
        "`scaled_dot_product_attention(x @ w_q, x @ w_k, x @ w_v)` gives both results. `cross_attention` works too, "
        "with `x` in two places.",
    ),
)


def _expect_both(got, wanted, where):
    """Outputs and weights, in this order, as a tuple."""
    expect(type(got).__name__, "tuple", f"{where}: the kind of the result (outputs, weights)")
    expect(len(got), 2, f"{where}: the number of results (outputs, weights)")
    for name, found, right in zip(("outputs", "weights"), got, wanted, strict=True):
        expect(found, right, f"{where}: the {name}")


def _set_of_vectors(rng, *leading, tokens=5, d_in=4, d_k=3, d_out=6, dtype=torch.float32):
    shapes = [(*leading, tokens, d_in), (d_in, d_k), (d_in, d_k), (d_in, d_out)]
    return [torch.randn(*shape, generator=rng).to(dtype) for shape in shapes]


def _sdpa(x, w_q, w_k, w_v):
    """PyTorch's own attention, and the weights: those are its outputs when the values are the unit vectors."""
    tokens = x.shape[-2]
    units = torch.eye(tokens, dtype=x.dtype).expand(*x.shape[:-1], tokens)
    queries, keys = x @ w_q, x @ w_k
    weights = F.scaled_dot_product_attention(queries, keys, units)
    return F.scaled_dot_product_attention(queries, keys, x @ w_v), weights


@ex.check("three words that you can follow")
def _(answer, rng):
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    w_q, w_k, w_v = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [-1.0]]), 10 * torch.eye(2)
    outputs = torch.tensor([[9.099694, 3.347586], [9.841238, 1.331867], [9.976444, 0.496698]])
    weights = [[0.665241, 0.090031, 0.244728], [0.866813, 0.015876, 0.117310], [0.950330, 0.002356, 0.047314]]
    _expect_both(answer(x, w_q, w_k, w_v), (outputs, torch.tensor(weights)), "the lesson's example")


@ex.check("5 tokens of width 4 become 5 tokens of width 6, as PyTorch's own attention computes them")
def _(answer, rng):
    values = _set_of_vectors(rng)
    _expect_both(answer(*values), _sdpa(*values), "x (5, 4), w_q and w_k (4, 3), w_v (4, 6)")


@ex.check("two leading dimensions; as many tokens as numbers; one width for all")
def _(answer, rng):
    for leading, sizes in [((2, 3), {}), ((), {"tokens": 4}), ((3,), {"d_k": 4, "d_out": 4})]:
        values = _set_of_vectors(rng, *leading, **sizes)
        _expect_both(answer(*values), _sdpa(*values), f"shapes {[tuple(v.shape) for v in values]}")


@ex.check("one token attends to itself")
def _(answer, rng):
    x, w_q, w_k, w_v = _set_of_vectors(rng, 2, tokens=1)
    _expect_both(answer(x, w_q, w_k, w_v), (x @ w_v, torch.ones(2, 1, 1)), "its weight is 1, its output is its value")


@ex.check("float64, float16, bfloat16, and large scores")
def _(answer, rng):
    for dtype in (torch.float64, *HALF):
        values = _set_of_vectors(rng, 2, dtype=dtype)
        _expect_both(answer(*values), lesson.self_attention(*values), f"inputs in {dtype}")
    x, w_q, w_k, w_v = _set_of_vectors(rng)
    large = x, 100 * w_q, 100 * w_k, w_v
    _expect_both(answer(*large), _sdpa(*large), "scores of tens of thousands")


@ex.check("gradients reach x and all three weights")
def _(answer, rng):
    values = _set_of_vectors(rng, 2)
    _expect_both(answer(*values), _sdpa(*values), "x (2, 5, 4)")
    got = gradients(lambda *v: answer(*v)[0].square().sum(), values)
    wanted = gradients(lambda *v: lesson.self_attention(*v)[0].square().sum(), values)
    expect(got, wanted, "gradients of x, w_q, w_k, w_v")


def _softmax_attention(scores, values, dim=-1):
    weights = torch.softmax(scores, dim=dim)
    return weights @ values, weights


@ex.mistake("no projection", hint="`x` itself goes in three times. Multiply it by `w_q`, `w_k` and `w_v` first.")
def _(x, w_q, w_k, w_v):
    return scaled_dot_product_attention(x, x, x)


@ex.mistake(
    "the values are not projected",
    hint="The weights are applied to `x` itself. They belong to the values, `x @ w_v`, which have the width d_out.",
)
def _(x, w_q, w_k, w_v):
    return scaled_dot_product_attention(x @ w_q, x @ w_k, x)


@ex.mistake(
    "keys and values swapped", hint="Keys are compared with the queries; values are added up. Here it is reversed."
)
def _(x, w_q, w_k, w_v):
    return scaled_dot_product_attention(x @ w_q, x @ w_v, x @ w_k)


@ex.mistake(
    "keys and values swapped, in a formula of one's own",
    hint="The queries are compared with `x @ w_v` here. That product gives the values; the keys are `x @ w_k`.",
)
def _(x, w_q, w_k, w_v):
    scores = (x @ w_q) @ (x @ w_v).transpose(-2, -1) / w_q.shape[-1] ** 0.5
    return _softmax_attention(scores, x @ w_k)


@ex.mistake(
    "queries and keys swapped",
    hint="Row i of the weights belongs to the query of token i. Here it belongs to its key: swap `w_q` and `w_k`.",
)
def _(x, w_q, w_k, w_v):
    return scaled_dot_product_attention(x @ w_k, x @ w_q, x @ w_v)


@ex.mistake(
    "one projection for queries and keys",
    hint="Queries and keys have weights of their own: `w_q` and `w_k`. Here one of them is used twice.",
)
def _(x, w_q, w_k, w_v):
    return scaled_dot_product_attention(x @ w_q, x @ w_q, x @ w_v)


@ex.mistake("no scale", hint="Divide the scores by √d_k before the softmax. Lesson 03 shows what happens otherwise.")
def _(x, w_q, w_k, w_v):
    return _softmax_attention((x @ w_q) @ (x @ w_k).transpose(-2, -1), x @ w_v)


@ex.mistake(
    "scaled by the width of x",
    hint="The scale is √d_k, the width of queries and keys, not the width of `x`.",
)
def _(x, w_q, w_k, w_v):
    return _softmax_attention((x @ w_q) @ (x @ w_k).transpose(-2, -1) / x.shape[-1] ** 0.5, x @ w_v)


@ex.mistake(
    "softmax over the queries",
    hint="The weights of *one query* sum to 1: the softmax goes over the keys, the last dimension.",
)
def _(x, w_q, w_k, w_v):
    scores = (x @ w_q) @ (x @ w_k).transpose(-2, -1) / w_q.shape[-1] ** 0.5
    return _softmax_attention(scores, x @ w_v, dim=-2)


@ex.mistake("only the outputs", hint="Two results are asked for, `(outputs, weights)`, in this order.")
def _(x, w_q, w_k, w_v):
    return lesson.self_attention(x, w_q, w_k, w_v)[0]


# ---- permute_tokens ------------------------------------------------------------------------------------------

ex = Exercise(
    "permute_tokens",
    reference=lesson.permute_tokens,
    points=1,
    seconds=5,
    minutes=5,
    hints=(
        "A tensor can be indexed with a tensor of numbers: `x[order]` takes these entries, in this order. On which "
        "dimension do the tokens stand?",
        "`...` stands for all dimensions in front, and `:` for a whole dimension: `x[..., 0, :]` is the first token.",
        "`x[..., order, :]`, or `x.index_select(-2, order)`.",
    ),
)


@ex.check("three tokens that you can follow")
def _(answer, rng):
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    wanted = torch.tensor([[5.0, 6.0], [1.0, 2.0], [3.0, 4.0]])
    expect(answer(x, torch.tensor([2, 0, 1])), wanted, "the order [2, 0, 1]")


@ex.check("5 tokens of width 4, and none of the numbers changed")
def _(answer, rng):
    x, order = torch.randn(5, 4, generator=rng), torch.tensor([3, 0, 4, 1, 2])
    expect(answer(x, order), torch.stack([x[i] for i in order]), "x (5, 4), order [3, 0, 4, 1, 2]")


@ex.check("leading dimensions, and as many tokens as numbers")
def _(answer, rng):
    order = torch.tensor([2, 3, 1, 0])
    for leading in ((), (3,), (2, 4), (4,)):
        x = torch.randn(*leading, 4, 4, generator=rng)
        wanted = torch.stack([x.select(-2, i) for i in order.tolist()], dim=-2)
        expect(answer(x, order), wanted, f"x {(*leading, 4, 4)}, order {order.tolist()}")


@ex.check("one token; float16")
def _(answer, rng):
    x = torch.randn(2, 1, 3, generator=rng)
    expect(answer(x, torch.tensor([0])), x.clone(), "one token stays where it is")
    x = torch.randn(3, 5, generator=rng).half()
    expect(answer(x, torch.tensor([1, 2, 0])), torch.stack([x[1], x[2], x[0]]), "the order [1, 2, 0]")


@ex.check("the gradient goes back to where each vector came from")
def _(answer, rng):
    x, order = torch.randn(3, 2, generator=rng), torch.tensor([2, 0, 1])
    leaf = x.clone().requires_grad_()
    got = answer(leaf, order)
    expect(got.detach(), torch.stack([x[2], x[0], x[1]]), "the vectors themselves")
    (gradient,) = torch.autograd.grad((got * torch.tensor([[1.0], [10.0], [100.0]])).sum(), leaf)
    wanted = torch.tensor([[10.0], [100.0], [1.0]]).expand(3, 2)
    expect(gradient, wanted, "the gradient when the tokens of the result count 1, 10 and 100")


@ex.mistake(
    "the inverse order",
    hint="`order[i]` says where token i of the result comes *from*. Here token i goes *to* place `order[i]`.",
)
def _(x, order):
    return x[..., order.argsort(), :]


@ex.mistake(
    "the numbers are permuted", hint="The last dimension holds the numbers of one vector. The tokens stand before it."
)
def _(x, order):
    return x[..., order]


@ex.mistake(
    "the first dimension", hint="With leading dimensions the tokens are not first. Count from the end: dimension -2."
)
def _(x, order):
    return x[order]


@ex.mistake("the second dimension", hint="The tokens stand on dimension -2, however many dimensions come before it.")
def _(x, order):
    return x[:, order]


@ex.mistake("tokens and numbers permuted", hint="Only the tokens move. Each vector keeps its numbers in their places.")
def _(x, order):
    return x[..., order, :][..., order]


@ex.mistake("changed in place", hint="`x[...] = …` writes into the caller's tensor. Return a new one.")
def _(x, order):
    with torch.no_grad():
        x[...] = x[..., order, :].clone()
    return x


# ---- sinusoidal_encoding -------------------------------------------------------------------------------------

ex = Exercise(
    "sinusoidal_encoding",
    reference=lesson.sinusoidal_encoding,
    points=2,
    seconds=5,
    minutes=20,
    hints=(
        "Three steps: the angles, their sines and cosines, and then the order of the columns. The angles are a table "
        "of shape (positions, pairs): every position times every frequency.",
        "The 2i of the formula is `torch.arange(0, d_model, 2, dtype=torch.float64)`: 0, 2, 4, … A column "
        "`positions.unsqueeze(-1)` times a row `frequencies` gives the table.",
        "Columns alternate: sine, cosine, sine, cosine. `torch.stack([angles.sin(), angles.cos()], dim=-1)` has shape "
        "(positions, pairs, 2); `.flatten(-2)` puts the pairs side by side. Another way: an empty table, filled with "
        "`table[:, 0::2] = …` and `table[:, 1::2] = …`.",
        "For an odd d_model there is one cosine too many: cut the last column off with `[:, :d_model]`. Last step: "
        "`.float()`.",
    ),
)


def _sinusoid(n_positions, d_model):
    """The formula, number by number, in Python's own float64."""
    rows = []
    for t in range(n_positions):
        angles = [t / 10000 ** ((j - j % 2) / d_model) for j in range(d_model)]
        rows.append([math.cos(a) if j % 2 else math.sin(a) for j, a in enumerate(angles)])
    return torch.tensor(rows, dtype=torch.float64).reshape(n_positions, d_model).float()


@ex.check("three positions of width 4 that you can follow")
def _(answer, rng):
    wanted = [[0, 1, 0, 1], [0.841471, 0.540302, 0.0099998, 0.99995], [0.909297, -0.416147, 0.0199987, 0.9998]]
    expect(answer(3, 4), torch.tensor(wanted), "the frequencies are 1 and 1/100")


@ex.check("7 positions of width 10")
def _(answer, rng):
    expect(answer(7, 10), _sinusoid(7, 10), "sinusoidal_encoding(7, 10)")


@ex.check("odd widths: the last cosine is left out")
def _(answer, rng):
    for d_model in (5, 1, 9):
        expect(answer(6, d_model), _sinusoid(6, d_model), f"sinusoidal_encoding(6, {d_model})")


@ex.check("one position, no position, width 2")
def _(answer, rng):
    expect(answer(1, 6), torch.tensor([[0.0, 1, 0, 1, 0, 1]]), "position 0: all sines 0, all cosines 1")
    expect(answer(0, 6), torch.zeros(0, 6), "no position: a table without rows")
    expect(answer(4, 2), _sinusoid(4, 2), "sinusoidal_encoding(4, 2)")


@ex.check("position 20,000 is as exact as position 2")
def _(answer, rng):
    angles = [20000 / 10000 ** (2 * i / 12) for i in range(6)]
    wanted = torch.tensor([f(a) for a in angles for f in (math.sin, math.cos)], dtype=torch.float64).float()
    expect(answer(20001, 12)[-1], wanted, "the last row of sinusoidal_encoding(20001, 12); its largest angle is 20,000")


def _table(n_positions, d_model, exponents, dtype=torch.float64, first=0):
    """Sines and cosines in turn, of the positions from `first` on; `exponents` has a number a column."""
    positions = torch.arange(first, first + n_positions, dtype=dtype).unsqueeze(-1)
    angles = positions * 10000.0 ** -exponents.to(dtype)
    return torch.where(torch.arange(d_model) % 2 == 0, angles.sin(), angles.cos()).float()


def _even_columns(d_model):
    return torch.arange(d_model, dtype=torch.float64) // 2 * 2


@ex.mistake(
    "the exponent is i, not 2i",
    hint="Pair i has the exponent -2i / d_model, so the last frequency is near 1/10000. Here it is near 1/100.",
)
def _(n_positions, d_model):
    return _table(n_positions, d_model, _even_columns(d_model) / 2 / d_model)


@ex.mistake(
    "every column has its own frequency",
    hint="Sine and cosine of a pair have the *same* frequency. Columns 2 and 3 both have the exponent -2 / d_model.",
)
def _(n_positions, d_model):
    return _table(n_positions, d_model, torch.arange(d_model, dtype=torch.float64) / d_model)


@ex.mistake(
    "divided by the last even column",
    hint="The exponent is -2i / d_model. Divided by d_model - 2 the last frequency becomes exactly 1/10000.",
)
def _(n_positions, d_model):
    last = max((d_model - 1) // 2 * 2, 1)
    return _table(n_positions, d_model, _even_columns(d_model) / last)


@ex.mistake(
    "no minus in the exponent",
    hint="The frequencies get smaller from pair to pair: 10000 to a *negative* power. Here they grow.",
)
def _(n_positions, d_model):
    return _table(n_positions, d_model, -_even_columns(d_model) / d_model)


@ex.mistake(
    "log10 where exp needs the natural logarithm",
    hint="10000^y is exp(y · ln 10000), with the natural logarithm, `math.log(10000)` = 9.21; log10 gives 4.",
)
def _(n_positions, d_model):
    return _table(n_positions, d_model, _even_columns(d_model) / d_model * 4 / math.log(10000))


@ex.mistake(
    "all sines first, then all cosines",
    hint="The columns alternate: sine, cosine, sine, cosine. Here the sines fill the left half. "
    "Stack them on a new last dimension and flatten, or fill every second column.",
)
def _(n_positions, d_model):
    table = _table(n_positions, d_model + d_model % 2, _even_columns(d_model + d_model % 2) / d_model)
    return torch.cat([table[:, 0::2], table[:, 1::2]], dim=-1)[:, :d_model]


@ex.mistake("cosine first", hint="Column 0 is a sine, so row 0 begins 0, 1, 0, 1. Here it begins 1, 0, 1, 0.")
def _(n_positions, d_model):
    table = _table(n_positions, d_model + d_model % 2, _even_columns(d_model + d_model % 2) / d_model)
    return table.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)[:, :d_model]


@ex.mistake("positions from 1", hint="The first position is 0, and sin 0 = 0: row 0 is 0, 1, 0, 1, …")
def _(n_positions, d_model):
    return _table(n_positions, d_model, _even_columns(d_model) / d_model, first=1)


@ex.mistake(
    "a row too long for odd widths", hint="For an odd d_model the last pair has only its sine: cut the cosine off."
)
def _(n_positions, d_model):
    even = d_model + d_model % 2
    return _table(n_positions, even, _even_columns(even) / d_model)


@ex.mistake(
    "an error for odd widths",
    hint="For an odd d_model there is one cosine column less than there are frequencies. Leave the last cosine out.",
)
def _(n_positions, d_model):
    table = torch.zeros(n_positions, d_model)
    positions = torch.arange(n_positions, dtype=torch.float64).unsqueeze(-1)
    angles = positions * 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    table[:, 0::2], table[:, 1::2] = angles.sin().float(), angles.cos().float()
    return table


@ex.mistake(
    "angles in float32",
    hint="float32 keeps about 7 digits. An angle of 20,000 has used five of them, and its sine is no longer exact. "
    "Make positions and frequencies in float64, and convert at the end.",
)
def _(n_positions, d_model):
    return _table(n_positions, d_model, _even_columns(d_model) / d_model, dtype=torch.float32)


@ex.mistake("the result in float64", hint="The values are right, but the table should be float32. End with `.float()`.")
def _(n_positions, d_model):
    positions = torch.arange(n_positions, dtype=torch.float64).unsqueeze(-1)
    angles = positions * 10000.0 ** (-_even_columns(d_model) / d_model)
    return torch.where(torch.arange(d_model) % 2 == 0, angles.sin(), angles.cos())


# ---- apply_rotary --------------------------------------------------------------------------------------------

ex = Exercise(
    "apply_rotary",
    reference=lesson.apply_rotary,
    points=2,
    seconds=5,
    minutes=20,
    hints=(
        "Four steps: the angles as in `sinusoidal_encoding`, then the two halves of all pairs, then the two lines of "
        "the rotation, then the columns in their old places.",
        "`a, b = x[..., 0::2], x[..., 1::2]` are the first and the second numbers of all pairs, each of shape "
        "(..., tokens, pairs). The angles, `positions.unsqueeze(-1) * frequencies`, have shape (tokens, pairs).",
        "`torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)` puts the new pairs side by side.",
        "The dtype: convert the cosines and sines to float32 (for x in float64: leave them), rotate, and end with "
        "`.to(x.dtype)`.",
    ),
)


def _rotated(x, positions):
    """Su et al.'s other formulation: each pair is a complex number, and a rotation is one product."""
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    exponents = torch.arange(pairs.shape[-1], dtype=torch.float64) * 2 / x.shape[-1]
    angles = positions.double().unsqueeze(-1) / 10000.0**exponents
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


@ex.check("the vector [1, 0] at positions 0, 1 and 2")
def _(answer, rng):
    x, positions = torch.tensor([[1.0, 0.0]] * 3), torch.arange(3)
    wanted = torch.tensor([[1.0, 0.0], [0.540302, 0.841471], [-0.416147, 0.909297]])
    expect(answer(x, positions), wanted, "turned by the angles 0, 1 and 2")


@ex.check("5 tokens of width 8, as products of complex numbers")
def _(answer, rng):
    x, positions = torch.randn(5, 8, generator=rng), torch.arange(5)
    expect(answer(x, positions), _rotated(x, positions), "x (5, 8), positions 0 to 4")


@ex.check("positions that do not count 0, 1, 2")
def _(answer, rng):
    x, positions = torch.randn(4, 6, generator=rng), torch.tensor([7, 3, 40, 3])
    expect(answer(x, positions), _rotated(x, positions), "x (4, 6), positions [7, 3, 40, 3]")


@ex.check("leading dimensions, one token, as many tokens as pairs")
def _(answer, rng):
    for leading, tokens, d_k in [((3,), 5, 4), ((2, 3), 5, 8), ((2,), 1, 6), ((3,), 3, 6)]:
        x, positions = torch.randn(*leading, tokens, d_k, generator=rng), torch.arange(2, tokens + 2)
        expect(answer(x, positions), _rotated(x, positions), f"x {tuple(x.shape)}, positions from 2")


@ex.check("float64, float16, bfloat16: the dtype stays, the angles are exact")
def _(answer, rng):
    for dtype in (torch.float64, *HALF):
        x, positions = torch.randn(2, 3, 4, generator=rng).to(dtype), torch.tensor([1, 301, 1003])
        expect(answer(x, positions), _rotated(x, positions), f"x in {dtype}, positions [1, 301, 1003]")


@ex.check("the gradient is turned back")
def _(answer, rng):
    x, positions = torch.randn(3, 4, generator=rng), torch.tensor([0, 2, 5])
    leaf = x.clone().requires_grad_()
    got = answer(leaf, positions)
    expect(got.detach(), _rotated(x, positions), "the vectors themselves")
    (gradient,) = torch.autograd.grad(got.sum(), leaf)
    expect(gradient, _rotated(torch.ones(3, 4), -positions), "the gradient of the sum")


def _rotate(x, positions, exponents=None, direction=1):
    """The right rotation, where nothing else is said: the new pairs' first and second numbers."""
    if exponents is None:
        exponents = torch.arange(0, x.shape[-1], 2, dtype=torch.float64) / x.shape[-1]
    return _turn(x[..., 0::2], x[..., 1::2], direction * positions.unsqueeze(-1) * 10000.0**-exponents)


def _turn(a, b, angles):
    wide = torch.promote_types(a.dtype, torch.float32)
    cos, sin = angles.cos().to(wide), angles.sin().to(wide)
    return [a * cos - b * sin, a * sin + b * cos]


def _interleave(pair):
    return torch.stack(pair, dim=-1).flatten(-2)


@ex.mistake(
    "the half-split layout",
    hint="Here column i is paired with column i + d_k / 2. Both layouts are in use, but here neighbours are a pair: "
    "columns 0 and 1, columns 2 and 3, …",
)
def _(x, positions):
    angles = positions.unsqueeze(-1) * 10000.0 ** (-torch.arange(0, x.shape[-1], 2, dtype=torch.float64) / x.shape[-1])
    return torch.cat(_turn(*x.chunk(2, dim=-1), angles), dim=-1).to(x.dtype)


@ex.mistake(
    "put back in halves",
    hint="The rotation is right, but the new pairs are not where the old ones were. Use stack and flatten, not cat.",
)
def _(x, positions):
    return torch.cat(_rotate(x, positions), dim=-1).to(x.dtype)


@ex.mistake(
    "the wrong direction",
    hint="The signs of the two sines are swapped. The first number is a cos α - b sin α, the second a sin α + b cos α.",
)
def _(x, positions):
    return _interleave(_rotate(x, positions, direction=-1)).to(x.dtype)


@ex.mistake("the same angle for all pairs", hint="Each pair has its own frequency: 10000^(-2i / d_k) for pair i.")
def _(x, positions):
    return _interleave(_rotate(x, positions, torch.zeros(x.shape[-1] // 2, dtype=torch.float64))).to(x.dtype)


@ex.mistake("the exponent is i, not 2i", hint="Pair i has the exponent -2i / d_k. Here it is -i / d_k.")
def _(x, positions):
    exponents = torch.arange(x.shape[-1] // 2, dtype=torch.float64) / x.shape[-1]
    return _interleave(_rotate(x, positions, exponents)).to(x.dtype)


@ex.mistake(
    "positions from 1", hint="`positions` says where each token stands: use it as it is. Position 0 does not turn."
)
def _(x, positions):
    return _interleave(_rotate(x, positions + 1)).to(x.dtype)


@ex.mistake(
    "positions are not used",
    hint="Here token j stands at position j. But `positions` may begin anywhere: use it to make the angles.",
)
def _(x, positions):
    return _interleave(_rotate(x, torch.arange(x.shape[-2]))).to(x.dtype)


@ex.mistake(
    "the tokens on the wrong axis",
    hint="The tokens stand on dimension -2. Here the angles run along the dimension before it. "
    "`positions.unsqueeze(-1) * frequencies`, of shape (tokens, pairs), fits without any more dimensions.",
)
def _(x, positions):
    return _interleave(_rotate(x, positions.unsqueeze(-1))).to(x.dtype)


@ex.mistake(
    "angles in the dtype of x",
    hint="float16 and bfloat16 have so few digits that a large position is not exact, nor its angle. "
    "Compute positions times frequencies in float64.",
)
def _(x, positions):
    frequencies = 10000.0 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = positions.to(x.dtype).unsqueeze(-1) * frequencies.to(x.dtype)
    return _interleave(_turn(x[..., 0::2], x[..., 1::2], angles)).to(x.dtype)


@ex.mistake(
    "angles in float32",
    hint="When x is float64, angles of float32 are not exact enough. Compute positions times frequencies in float64.",
)
def _(x, positions):
    angles = positions.unsqueeze(-1) * 10000.0 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    return _interleave(_turn(x[..., 0::2], x[..., 1::2], angles)).to(x.dtype)


@ex.mistake(
    "everything becomes float64",
    hint="The cosines and sines are float64, and so is all that they multiply. Convert the result: `.to(x.dtype)`.",
)
def _(x, positions):
    return _interleave(_rotate(x, positions)).double()


@ex.mistake(
    "float16 becomes float32",
    hint="float16 times float32 gives float32. The result should have the dtype of `x`: end with `.to(x.dtype)`.",
)
def _(x, positions):
    return _interleave(_rotate(x, positions))
