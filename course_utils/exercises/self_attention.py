"""Lesson 04's exercises: self-attention, another order of the tokens, sinusoidal positions and rotary ones."""

import math

import torch
import torch.nn.functional as F

from course_utils.exercises import Exercise, case, expect, normal
from course_utils.lessons import self_attention as lesson
from course_utils.lessons.attention_layer import scaled_dot_product_attention

# ---- self_attention ------------------------------------------------------------------------------------------

ex = Exercise(
    lesson.self_attention,
    points=1,
    minutes=10,
    returns=("outputs", "weights"),
    hints=(
        "Everything comes from `x`. First make three matrices out of it, each with its own weights. "
        "Then use a function of lesson 03.",
        "Queries, keys and values are `x @ w_q`, `x @ w_k` and `x @ w_v`. Which lesson 03 function takes these three?",
        "`scaled_dot_product_attention(x @ w_q, x @ w_k, x @ w_v)` gives both results. `cross_attention` works too, "
        "with `x` in two places.",
    ),
)


def pytorchs_attention(x, w_q, w_k, w_v):
    """PyTorch's own attention, and the weights: those are its outputs when the values are the unit vectors."""
    tokens = x.shape[-2]
    units = torch.eye(tokens, dtype=x.dtype).expand(*x.shape[:-1], tokens)
    queries, keys = x @ w_q, x @ w_k
    weights = F.scaled_dot_product_attention(queries, keys, units)
    return F.scaled_dot_product_attention(queries, keys, x @ w_v), weights


def as_pytorch(plain):
    return plain.gives(pytorchs_attention(*plain.args))


vectors = ex.inputs(tokens=5, d_in=6, d_k=8, d_out=7)
x, w_q, w_k, w_v = vectors().args
one_token = vectors(2, tokens=1)

ex.cases(
    "three words that you can follow",
    case(
        torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
        *(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [-1.0]]), 10 * torch.eye(2)),
    )
    .gives(
        (
            torch.tensor([[9.099694, 3.347586], [9.841238, 1.331867], [9.976444, 0.496698]]),
            torch.tensor(
                [[0.665241, 0.090031, 0.244728], [0.866813, 0.015876, 0.117310], [0.950330, 0.002356, 0.047314]]
            ),
        )
    )
    .noted("the lesson's example"),
)
ex.cases(
    "5 tokens of width 6 become 5 tokens of width 7, as PyTorch's own attention computes them", as_pytorch(vectors())
)
ex.promises(vectors, "leading", "sizes", "dtypes", "gradients", "device")
ex.cases(
    "as many tokens as numbers, and as sequences; one width for all",
    as_pytorch(vectors(4, tokens=4, d_k=4)),
    *(as_pytorch(vectors(3, tokens=6, d_k=n, d_out=n)) for n in (8, 6)),
)
ex.cases(
    "one token attends to itself",
    one_token.gives((one_token.args[0] @ w_v, torch.ones(2, 1, 1))).noted("its weight is 1, its output is its value"),
    kind="ones",
)
ex.cases("large scores", as_pytorch(case(x, 300 * w_q, 300 * w_k, w_v)).noted("scores of tens of thousands"))


def scores_of(x, w_q, w_k):
    return (x @ w_q) @ (x @ w_k).mT / w_q.shape[-1] ** 0.5


def both(weights, values):
    return weights @ values, weights


ex.mistake(
    "no projection",
    lambda x, w_q, w_k, w_v: scaled_dot_product_attention(x, x, x),
    hint="`x` itself goes in three times. Multiply it by `w_q`, `w_k` and `w_v` first.",
)
ex.mistake(
    "the values are not projected",
    lambda x, w_q, w_k, w_v: scaled_dot_product_attention(x @ w_q, x @ w_k, x),
    hint="The weights are applied to `x` itself. They belong to the values, `x @ w_v`, which have the width d_out.",
)
ex.mistake(
    "keys and values swapped",
    {"w_k, w_v": "w_v, w_k"},
    hint="Keys are compared with the queries; values are added up. Here it is reversed.",
)
ex.mistake(
    "queries and keys swapped",
    {"w_q, w_k": "w_k, w_q"},
    hint="Row i of the weights belongs to the query of token i. Here it belongs to its key: swap `w_q` and `w_k`.",
)
ONE_MATRIX = "Queries and keys have weights of their own: `w_q` and `w_k`. Here one of them is used twice."
ex.mistake("`w_q` for queries and keys", {"w_k": "w_q"}, hint=ONE_MATRIX)
ex.mistake("`w_k` for queries and keys", {"w_q": "w_k"}, hint=ONE_MATRIX)
ex.mistake(
    "the keys instead of the values",
    {"w_v": "w_k"},
    hint="The weights add up the values, which are `x @ w_v`. Here they add up the keys.",
)
ex.mistake(
    "the weights' matrices transposed",
    {"w_q, w_k, w_v": "w_q.T, w_k.T, w_v.T"},
    hint="Here each matrix is transposed before `x` meets it; `F.linear` does that. Vectors are rows: `x @ w_q`.",
)
ex.mistake(
    "no scale",
    {"w_q": "w_q * w_q.shape[-1] ** 0.5"},
    hint="Divide the scores by √d_k before the softmax. Lesson 03 shows what happens otherwise.",
)
ex.mistake(
    "scaled by the width of x",
    {"w_q": "w_q * (w_q.shape[-1] / x.shape[-1]) ** 0.5"},
    hint="The scale is √d_k, the width of queries and keys, not the width of `x`.",
)
ex.mistake(
    "scaled by the width of the values",
    {"w_q": "w_q * (w_q.shape[-1] / w_v.shape[-1]) ** 0.5"},
    hint="The scale is √d_k, the width of queries and keys, not the width of the values.",
)
ex.mistake(
    "scaled by the number of tokens",
    {"w_q": "w_q * (w_q.shape[-1] / x.shape[-2]) ** 0.5"},
    hint="The scale is √d_k, the width of queries and keys, not the number of tokens.",
)
ex.mistake(
    "divided by d_k",
    {"w_q": "w_q / w_q.shape[-1] ** 0.5"},
    hint="The scores are divided by d_k here, not by √d_k. `scaled_dot_product_attention` divides by √d_k already.",
)
ex.mistake(
    "√d_k as a whole number",
    {"w_q": "w_q * w_q.shape[-1] ** 0.5 / int(w_q.shape[-1] ** 0.5)"},
    hint="√8 is 2.83, but `int(…)` and `//` make a 2 of it. Leave the root as it is.",
)
ex.mistake(
    "the keys are not transposed",
    lambda x, w_q, w_k, w_v: both(torch.softmax((x @ w_q) @ (x @ w_k) / w_q.shape[-1] ** 0.5, dim=-1), x @ w_v),
    hint="Scores are the dot products of each query with each key: `queries @ keys.transpose(-2, -1)`.",
)
ex.mistake(
    "`.T` with a batch",
    lambda x, w_q, w_k, w_v: both(torch.softmax((x @ w_q) @ (x @ w_k).T / w_q.shape[-1] ** 0.5, dim=-1), x @ w_v),
    hint="`.T` turns all dimensions round, the batch too. Swap the last two only: `.transpose(-2, -1)`, or `.mT`.",
)
ex.mistake(
    "softmax over the queries",
    lambda x, w_q, w_k, w_v: both(torch.softmax(scores_of(x, w_q, w_k), dim=-2), x @ w_v),
    hint="The weights of *one query* sum to 1: the softmax goes over the keys, the last dimension.",
)
ex.mistake(
    "no softmax",
    lambda x, w_q, w_k, w_v: both(scores_of(x, w_q, w_k), x @ w_v),
    hint="These are scores, not weights: a softmax over the keys is missing.",
)
ex.mistake(
    "a softmax of one's own, without subtracting the largest score",
    lambda x, w_q, w_k, w_v: both(F.normalize(scores_of(x, w_q, w_k).exp(), p=1, dim=-1, eps=0), x @ w_v),
    hint="exp(1000) is inf, and inf / inf is nan. `torch.softmax` subtracts the largest score of each row first.",
)
ex.mistake(
    "one sum for all scores",
    lambda x, w_q, w_k, w_v: both(scores_of(x, w_q, w_k).exp() / scores_of(x, w_q, w_k).exp().sum(), x @ w_v),
    hint="The weights of *one query* sum to 1. `.sum()` without `dim` adds all queries together: use "
    "`torch.softmax(scores, dim=-1)`.",
)
ex.mistake(
    "the sums without `keepdim`",
    lambda x, w_q, w_k, w_v: both(scores_of(x, w_q, w_k).exp() / scores_of(x, w_q, w_k).exp().sum(-1), x @ w_v),
    hint="Without `keepdim=True` the sums do not stand beside their rows. `torch.softmax(scores, dim=-1)` does it all.",
)
ex.mistake(
    "only the outputs",
    lambda x, w_q, w_k, w_v: lesson.self_attention(x, w_q, w_k, w_v)[0],
    hint="Two results are asked for, `(outputs, weights)`, in this order.",
)
ex.mistake(
    "the weights first",
    lambda x, w_q, w_k, w_v: lesson.self_attention(x, w_q, w_k, w_v)[::-1],
    hint="The order of the results is `(outputs, weights)`. Here the weights come first.",
)
ex.mistake(
    "the gradient of the weights is cut off",
    lambda x, w_q, w_k, w_v: both(torch.softmax(scores_of(x, w_q, w_k), dim=-1).detach(), x @ w_v),
    hint="All values are right, but `detach`, `no_grad`, `.data` or numpy cut the weights off from `x`: `w_q` and "
    "`w_k` could learn nothing.",
)

# ---- permute_tokens ------------------------------------------------------------------------------------------

ex = Exercise(
    lesson.permute_tokens,
    points=1,
    minutes=5,
    hints=(
        "A tensor can be indexed with a tensor of numbers: `x[order]` takes these entries, in this order. On which "
        "dimension do the tokens stand?",
        "`...` stands for all dimensions in front, and `:` for a whole dimension: `x[..., 0, :]` is the first token.",
        "`x[..., order, :]`, or `x.index_select(-2, order)`.",
    ),
)


def sentence(*leading, tokens=5, d=7):
    order = torch.randperm(tokens, generator=torch.Generator().manual_seed(3))  # with 4 and 5 tokens: not its inverse
    return case(normal(*leading, tokens, d), order)


def token_by_token(*leading, order, d):
    x = normal(*leading, len(order), d)
    return case(x, torch.tensor(order)).gives(torch.stack([x.select(-2, i) for i in order], dim=-2))


ex.cases(
    "three tokens that you can follow",
    case(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([2, 0, 1])).gives(
        torch.tensor([[5.0, 6.0], [1.0, 2.0], [3.0, 4.0]])
    ),
)
ex.cases("5 tokens of width 4, and none of the numbers changed", token_by_token(order=[3, 0, 4, 1, 2], d=4))
ex.cases(
    "every number moves as it is, also infinity and NaN",
    case(torch.tensor([[torch.inf, 1.0], [2.0, torch.nan], [-torch.inf, 3.0]]), torch.tensor([1, 2, 0])).gives(
        torch.tensor([[2.0, torch.nan], [-torch.inf, 3.0], [torch.inf, 1.0]])
    ),
)
ex.promises(sentence, "leading", "sizes", "dtypes", "gradients", "device")
ex.cases(
    "as many tokens as numbers",
    *(token_by_token(*leading, order=[2, 3, 1, 0], d=4) for leading in ((), (3,), (2, 4), (4,))),
)


def overwritten(x, order):
    result = x.clone()
    for place, token in enumerate(order):
        result[..., place, :] = result[..., token, :]
    return result


ex.mistake(
    "the inverse order",
    {"x[..., order, :]": "x[..., order.argsort(), :]"},
    hint="`order[i]` says where token i of the result comes *from*. Here token i goes *to* place `order[i]`.",
)
ex.mistake(
    "the numbers are permuted",
    {"order, :]": "order]"},
    hint="The last dimension holds the numbers of one vector. The tokens stand before it.",
)
ex.mistake(
    "the first dimension",
    {"..., order, :": "order"},
    hint="With leading dimensions the tokens are not first. Count from the end: dimension -2.",
)
ex.mistake(
    "the second dimension",
    {"..., order, :": ":, order"},
    hint="The tokens stand on dimension -2, however many dimensions come before it.",
)
ex.mistake(
    "tokens and numbers permuted",
    {"x[..., order, :]": "x[..., order, :][..., order]"},
    hint="Only the tokens move. Each vector keeps its numbers in their places.",
)
ex.mistake(
    "the tokens of all sequences in one row",
    {"x[..., order, :]": "x.flatten(0, -2)[order]"},
    hint="Each sequence keeps its own tokens. Leave the leading dimensions as they are: `x[..., order, :]`.",
)
ex.mistake(
    "stacked in front of the leading dimensions",
    lambda x, order: torch.stack([x[..., i, :] for i in order.tolist()]),
    hint="`torch.stack` puts the tokens first. The leading dimensions stay in front: `dim=-2`.",
)
ex.mistake(
    "a product with a matrix of zeros and ones",
    lambda x, order: F.one_hot(order, x.shape[-2]).to(x) @ x,
    hint="A product adds 0 times every other token, and 0 times infinity is NaN. Take the vectors out of `x`.",
)
ex.mistake(
    "the order counted from 1",
    {"x[..., order, :]": "x[..., order - 1, :]"},
    hint="`order` counts from 0, as Python does: use its numbers as they are.",
)
ex.mistake(
    "read from what was already overwritten",
    overwritten,
    hint="Some tokens are read after others were written over them. Fill a new tensor, and read from `x`, which "
    "must stay as it is.",
)
ex.mistake("the order is not used", lambda x, order: x.clone(), hint="Your result has the tokens in their old order.")
ex.mistake("always float32", {"x[..., order, :]": "x[..., order, :].float()"}, hint="The dtype stays that of `x`.")

# ---- sinusoidal_encoding -------------------------------------------------------------------------------------

ex = Exercise(
    lesson.sinusoidal_encoding,
    points=2,
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
        "`.float()`. When you fill a table: for an odd d_model there is one cosine column less than there are "
        "frequencies. Leave the last cosine out.",
    ),
)


def formula(positions, d_model):
    """Number by number, in Python's own float64."""
    rows = []
    for t in positions:
        angles = [t / 10000 ** ((j - j % 2) / d_model) for j in range(d_model)]
        rows.append([math.cos(a) if j % 2 else math.sin(a) for j, a in enumerate(angles)])
    return torch.tensor(rows).reshape(len(positions), d_model)


def table(*_, n_positions=7, d_model=10):
    return case(n_positions, d_model).gives(formula(range(n_positions), d_model))


ex.cases(
    "three positions of width 4 that you can follow",
    case(3, 4)
    .gives(
        torch.tensor([[0, 1, 0, 1], [0.841471, 0.540302, 0.0099998, 0.99995], [0.909297, -0.416147, 0.0199987, 0.9998]])
    )
    .noted("the frequencies are 1 and 1/100"),
)
ex.cases("7 positions of width 10", table())
ex.cases("odd widths: the last cosine is left out", *(table(n_positions=6, d_model=d) for d in (5, 1, 9)))
ex.promises(table, "sizes")
ex.cases(
    "one position, width 2",
    case(1, 6).gives(torch.tensor([[0.0, 1, 0, 1, 0, 1]])).noted("all sines are 0, all cosines 1"),
    table(n_positions=4, d_model=2),
)


@ex.check("position 20,000 is as exact as position 2")
def _(answer, rng):
    expect(
        answer(20_001, 12)[-3:],
        formula(range(19_998, 20_001), 12),
        "the last three rows of sinusoidal_encoding(20001, 12); the largest angle is 20,000",
    )


PAIRS = "torch.stack([angles.sin(), angles.cos()], dim=-1)"
COLUMNS = "torch.where(torch.arange(d_model) % 2 == 0, angles.sin(), angles.cos())"
FREQUENCIES = "10000.0 ** (-even_columns / d_model)"
ex.mistake(
    "the exponent is i, not 2i",
    {"(0, d_model, 2,": "((d_model + 1) // 2,"},
    hint="Pair i has the exponent -2i / d_model, so the last frequency is near 1/10000. Here it is near 1/100.",
)
ex.mistake(
    "the exponent is 4i, not 2i",
    {"-even_columns": "-2 * even_columns"},
    hint="`torch.arange(0, d_model, 2)` is 2i already. Here the exponent is -4i / d_model.",
)
ex.mistake(
    "i counts columns, not pairs",
    {
        "(0, d_model, 2,": "(0, 2 * d_model, 2,",
        PAIRS: COLUMNS,
        ".flatten(-2)": "",
    },
    hint="i counts pairs: columns 2 and 3 are both pair 1, with the exponent -2 / d_model. Here the number of the "
    "column stands in the place of i.",
)
ex.mistake(
    "every column has its own frequency",
    {
        "(0, d_model, 2,": "(d_model,",
        PAIRS: COLUMNS,
        ".flatten(-2)": "",
    },
    hint="Sine and cosine of a pair have the *same* frequency. Columns 2 and 3 both have the exponent -2 / d_model.",
)
ex.mistake(
    "`repeat` instead of `repeat_interleave`",
    {
        "/ d_model)": "/ d_model).repeat(2)[:d_model]",
        PAIRS: COLUMNS,
        ".flatten(-2)": "",
    },
    hint="`repeat(2)` gives f0, f1, f0, f1. A pair has one frequency, and its columns stand side by side: f0, f0, f1, "
    "f1, which `repeat_interleave(2)` gives.",
)
ex.mistake(
    "odd widths rounded up in the exponent",
    {"/ d_model)": "/ (d_model + d_model % 2))"},
    hint="The exponent is -2i / d_model, also when d_model is odd. Make a column too many, and cut it off at the end.",
)
ex.mistake(
    "divided by the last even column",
    {"/ d_model": "/ max((d_model - 1) // 2 * 2, 1)"},
    hint="The exponent is -2i / d_model. Divided by d_model - 2 the last frequency becomes exactly 1/10000.",
)
ex.mistake(
    "no minus in the exponent",
    {"-even_columns": "even_columns"},
    hint="The frequencies get smaller from pair to pair: 10000 to a *negative* power. Here they grow.",
)
ex.mistake(
    "log10 where exp needs the natural logarithm",
    {"10000.0 ** (": "torch.exp(4.0 * "},
    hint="10000^y is exp(y · ln 10000), with the natural logarithm, `math.log(10000)` = 9.21; log10 gives 4.",
)
ex.mistake(
    "all sines first, then all cosines",
    {PAIRS: PAIRS.replace("stack", "cat"), ".flatten(-2)": ""},
    hint="The columns alternate: sine, cosine, sine, cosine. Here the sines fill the left half. "
    "Stack them on a new last dimension and flatten, or fill every second column.",
)
ex.mistake(
    "stacked in front, then reshaped",
    {PAIRS: "torch.stack([angles.sin(), angles.cos()])", ".flatten(-2)": ".reshape(n_positions, -1)"},
    hint="`torch.stack` without `dim=-1` puts the pair in front. A reshape then mixes the positions.",
)
ex.mistake(
    "cosine first",
    {"angles.sin(), angles.cos()": "angles.cos(), angles.sin()"},
    hint="Column 0 is a sine, so row 0 begins 0, 1, 0, 1. Here it begins 1, 0, 1, 0.",
)
ex.mistake(
    "no cosine",
    {"angles.cos()": "angles.sin()"},
    hint="Columns 1, 3, 5, … hold cosines. Here all columns are sines.",
)
ex.mistake(
    "positions from 1",
    {"(n_positions,": "(1, n_positions + 1,"},
    hint="The first position is 0, and sin 0 = 0: row 0 is 0, 1, 0, 1, …",
)
ex.mistake(
    "positions and pairs exchanged",
    {"positions.unsqueeze(-1) * frequencies": "positions * frequencies.unsqueeze(-1)"},
    hint="Each row is a position. Yours are frequencies: make a column of the positions, `positions.unsqueeze(-1)`.",
)
ex.mistake(
    "a row too long for odd widths",
    {"[:, :d_model]": ""},
    hint="For an odd d_model the last pair has only its sine: cut the cosine off.",
)
NO_LAST_SINE = (
    "For an odd d_model the last column is a sine. There are (d_model + 1) // 2 frequencies, not d_model // 2."
)
ex.mistake("a row too short for odd widths", {"(0, d_model, 2": "(0, d_model - 1, 2"}, hint=NO_LAST_SINE)
ex.mistake(
    "the last column of odd widths is 0",
    {"(0, d_model, 2": "(0, d_model - 1, 2", "pairs.flatten(-2)": "F.pad(pairs.flatten(-2), (0, 1))"},
    hint=NO_LAST_SINE,
)
FLOAT32 = (
    "float32 keeps about 7 digits. An angle of 20,000 has used five of them, and its sine is no longer exact. "
    "Make positions and frequencies in float64, and convert at the end."
)
ex.mistake(
    "angles in float32",
    {"(n_positions, dtype=torch.float64": "(n_positions", "2, dtype=torch.float64": "2"},
    hint=FLOAT32,
)
ex.mistake(
    "angles in float32, by `exp`",
    {
        "(n_positions, dtype=torch.float64": "(n_positions",
        FREQUENCIES: f"torch.exp(torch.arange(0, d_model, 2) * ({-math.log(10000)} / d_model))",
    },
    hint=FLOAT32,
)
ex.mistake(
    "angles in float32, by division",
    {
        "(n_positions, dtype=torch.float64": "(n_positions",
        FREQUENCIES: "10000.0 ** (torch.arange(0, d_model, 2) / d_model)",
        "* frequencies": "/ frequencies",
    },
    hint=FLOAT32,
)
ex.mistake("frequencies in float32", {"2, dtype=torch.float64": "2"}, hint=FLOAT32)
ex.mistake(
    "angles rounded to float32",
    {"angles.sin(), angles.cos()": "angles.float().sin(), angles.float().cos()"},
    hint=FLOAT32,
)
ex.mistake(
    "the result in float64",
    {".float()": ""},
    hint="The values are right, but the table should be float32. End with `.float()`.",
)

# ---- apply_rotary --------------------------------------------------------------------------------------------

ex = Exercise(
    lesson.apply_rotary,
    points=2,
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


def turned(x, positions):
    """Su et al.'s other formulation: each pair is a complex number, and a rotation is one product."""
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    exponents = torch.arange(pairs.shape[-1], dtype=torch.float64) * 2 / x.shape[-1]
    angles = positions.double().unsqueeze(-1) / 10000.0**exponents
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def queries(*leading, tokens=5, pairs=4):
    positions = torch.randint(100, (tokens,), generator=torch.Generator().manual_seed(1))
    return case(normal(*leading, tokens, 2 * pairs), positions)


def as_complex(positions, *shape, dtype=torch.float32):
    x, positions = normal(*shape, dtype=dtype), torch.tensor(positions)
    return case(x, positions).gives(turned(x, positions))


ex.cases(
    "the vector [1, 0] at positions 0, 1 and 2",
    case(torch.tensor([[1.0, 0.0]] * 3), torch.arange(3))
    .gives(torch.tensor([[1.0, 0.0], [0.540302, 0.841471], [-0.416147, 0.909297]]))
    .noted("turned by the angles 0, 1 and 2"),
)
ex.cases("5 tokens of width 8, as products of complex numbers", as_complex([0, 1, 2, 3, 4], 5, 8))
ex.cases("positions that do not count 0, 1, 2", as_complex([7, 3, 40, 3], 4, 6))
ex.promises(queries, "leading", "sizes", "dtypes", "gradients", "device")
ex.cases(
    "as many tokens as pairs, as numbers, and as sequences",
    *(as_complex([2, 3, 4, 5], *shape) for shape in ((3, 4, 8), (4, 4), (4, 4, 4), (2, 4, 4, 4))),
)
ex.cases(
    "the angles of large positions are exact in every dtype",
    *(
        as_complex([1, 3001, 20_011, 130_003], 2, 4, 8, dtype=dtype)
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    ),
)

HALVES, NEW_PAIRS = "x[..., 0::2], x[..., 1::2]", "a * cos - b * sin, a * sin + b * cos"
ex.mistake(
    "the half-split layout",
    {HALVES: "x.chunk(2, dim=-1)", "torch.stack": "torch.cat", ".flatten(-2)": ""},
    hint="Here column i is paired with column i + d_k / 2. Both layouts are in use, but here neighbours are a pair: "
    "columns 0 and 1, columns 2 and 3, …",
)
ex.mistake(
    "halves instead of pairs, put back as pairs",
    {HALVES: "x.chunk(2, dim=-1)"},
    hint="Here column i is paired with column i + d_k / 2. Neighbours are a pair: `x[..., 0::2]` and `x[..., 1::2]`.",
)
ex.mistake(
    "put back in halves",
    {"torch.stack": "torch.cat", ".flatten(-2)": ""},
    hint="The rotation is right, but the new pairs are not where the old ones were. Use stack and flatten, not cat.",
)
ex.mistake(
    "the wrong direction",
    {NEW_PAIRS: "a * cos + b * sin, b * cos - a * sin"},
    hint="The signs of the two sines are swapped. The first number is a cos α - b sin α, the second a sin α + b cos α.",
)
ex.mistake(
    "no minus",
    {"- b": "+ b"},
    hint="With two plus signs it is no rotation: the first number is a cos α *minus* b sin α.",
)
ex.mistake(
    "a minus in the second number",
    {"+ b": "- b"},
    hint="With two minus signs it is no rotation: the second number is a sin α *plus* b cos α.",
)
ex.mistake(
    "sine and cosine swapped",
    {"cos, sin =": "sin, cos ="},
    hint="At position 0 nothing turns: a is multiplied by cos 0 = 1. Here cosine and sine have changed places.",
)
ex.mistake(
    "the second number made of the new first one",
    {NEW_PAIRS: "a * cos - b * sin, (a * cos - b * sin) * sin + b * cos"},
    hint="The new b needs the old a, but that was overwritten. Keep the new numbers in other variables.",
)
ex.mistake(
    "the same angle for all pairs",
    {"* frequencies": "* frequencies[0].expand(d_k // 2)"},
    hint="Each pair has its own frequency: 10000^(-2i / d_k) for pair i.",
)
ex.mistake(
    "the exponent is i, not 2i",
    {"(0, d_k, 2,": "(d_k // 2,"},
    hint="Pair i has the exponent -2i / d_k. Here it is -i / d_k.",
)
ex.mistake(
    "the exponent is 4i, not 2i",
    {"-torch": "-2 * torch"},
    hint="`torch.arange(0, d_k, 2)` is 2i already. Here the exponent is -4i / d_k.",
)
ex.mistake(
    "no minus in the exponent",
    {"-torch": "torch"},
    hint="The frequencies get smaller from pair to pair: 10000 to a *negative* power. Here they grow.",
)
ex.mistake(
    "`repeat` instead of `repeat_interleave`",
    {
        "* frequencies": "* frequencies.repeat(2)",
        NEW_PAIRS: "a * cos[:, 0::2] - b * sin[:, 0::2], a * sin[:, 1::2] + b * cos[:, 1::2]",
    },
    hint="`repeat` puts the angles as α0, α1, α0, α1. Both columns of a pair need the same angle: α0, α0, α1, α1, "
    "which `repeat_interleave` gives.",
)
ex.mistake(
    "positions from 1",
    {"positions.unsqueeze": "(positions + 1).unsqueeze"},
    hint="`positions` says where each token stands: use it as it is. Position 0 does not turn.",
)
ex.mistake(
    "positions are not used",
    {"positions.unsqueeze": "torch.arange(x.shape[-2]).unsqueeze"},
    hint="Here token j stands at position j. But `positions` may begin anywhere: use it to make the angles.",
)
ex.mistake(
    "the tokens on the wrong axis",
    {"positions.unsqueeze(-1)": "positions[:, None, None]"},
    hint="The tokens stand on dimension -2. Here the angles run along the dimension before it. "
    "`positions.unsqueeze(-1) * frequencies`, of shape (tokens, pairs), fits without any more dimensions.",
)
LOW_DIGITS = (
    "float16 and bfloat16 have so few digits that a large position is not exact, nor its angle. "
    "Compute positions times frequencies in float64."
)
ex.mistake(
    "angles in the dtype of x",
    {"2, dtype=torch.float64": "2, dtype=x.dtype", "positions.unsqueeze": "positions.to(x.dtype).unsqueeze"},
    hint=LOW_DIGITS,
)
ROUNDED_ANGLES = (
    "When x is float64, angles of float32 are not exact enough. Compute positions times frequencies in float64."
)
ex.mistake(
    "positions in the dtype of x",
    {"positions.unsqueeze": "positions.to(x.dtype).unsqueeze"},
    hint=LOW_DIGITS,
)
ex.mistake(
    "x in float32",
    {
        HALVES: "x[..., 0::2].float(), x[..., 1::2].float()",
        "torch.promote_types(x.dtype, torch.float32)": "torch.float32",
    },
    hint="Here everything is rotated in float32, so an x in float64 loses half of its digits. Leave float64 as it is.",
)
ex.mistake(
    "frequencies in float32",
    {"2, dtype=torch.float64": "2", "positions.unsqueeze": "positions.double().unsqueeze"},
    hint=ROUNDED_ANGLES,
)
ex.mistake(
    "angles in float32",
    {"2, dtype=torch.float64": "2"},
    hint=ROUNDED_ANGLES,
)
ex.mistake(
    "angles rounded to float32",
    {"angles.cos().to(wide), angles.sin()": "angles.float().cos().to(wide), angles.float().sin()"},
    hint=ROUNDED_ANGLES,
)
ex.mistake(
    "cosines and sines in float32",
    {"torch.promote_types(x.dtype, torch.float32)": "torch.float32"},
    hint="When x is float64, cosines and sines of float32 are not exact enough: leave them in float64.",
)
ex.mistake(
    "everything becomes float64",
    {"angles.cos().to(wide), angles.sin().to(wide)": "angles.cos(), angles.sin()", ".to(x.dtype)": ""},
    hint="The cosines and sines are float64, and so is all that they multiply. Convert the result: `.to(x.dtype)`.",
)
ex.mistake(
    "float16 becomes float32",
    {".to(x.dtype)": ""},
    hint="float16 times float32 gives float32. The result should have the dtype of `x`: end with `.to(x.dtype)`.",
)
ex.mistake(
    "always float32",
    {".to(x.dtype)": ".float()"},
    hint="The dtype stays that of `x`: end with `.to(x.dtype)`, not with `.float()`.",
)
