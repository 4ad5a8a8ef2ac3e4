"""Lesson 08's exercises: a norm by hand, an MLP, the block of 2017, and how many numbers it learns."""

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises import Exercise, case, expect, normal, note
from course_utils.lessons import transformer_block

# ---- layer_norm ----------------------------------------------------------------------------------------------

ex = Exercise(
    transformer_block.layer_norm,
    points=2,
    minutes=15,
    hints=(
        "Four steps: subtract the mean, divide by the root of the variance plus eps, multiply by `gain`, add `bias`. "
        "Every vector has a mean and a variance of its own.",
        "`x.mean(dim=-1, keepdim=True)` is the mean of each vector. `keepdim` leaves a dimension of 1, so that it "
        "can be subtracted from all numbers of that vector. The variance is the mean of the squares of what is left.",
        "First `centred = x - …`, then `centred.square().mean(…)`, then `torch.sqrt(variance + eps)`. `torch.var` and "
        "`torch.std` divide by d_model - 1 unless you say `correction=0`.",
    ),
)


def vectors(*leading, d_model=7, **eps):
    return case(normal(*leading, d_model), normal(d_model, seed=1), normal(d_model, seed=2), **eps)


def by_pytorch(call):
    x, gain, bias = call.args
    return call.gives(F.layer_norm(x, gain.shape, gain, bias, **call.kwargs))


ones, zeros = torch.ones(2), torch.zeros(2)
ex.cases(
    "vectors that you can follow",
    case(torch.tensor([[1.0, 3.0], [10.0, 30.0], [4.0, 0.0]]), ones, zeros, 0.0)
    .gives(torch.tensor([[-1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]]))
    .noted("the means are 2, 20 and 2, the variances 1, 100 and 4"),
    case(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 4.0]), torch.tensor([10.0, 20.0]), 0.0)
    .gives(torch.tensor([8.0, 24.0]))
    .noted("2 · (-1) + 10 and 4 · 1 + 20"),
    case(torch.tensor([1.0, 3.0]), ones, zeros, 3.0).gives(torch.tensor([-0.5, 0.5])).noted("the root of 1 + 3 is 2"),
)
ex.cases("as `F.layer_norm` of PyTorch", by_pytorch(vectors(2, 5, d_model=12)), by_pytorch(vectors(6, eps=0.1)))
ex.promises(vectors, "leading", "sizes", "dtypes", "gradients", "device")
ex.cases(
    "vectors of small numbers, for which eps counts",
    *(by_pytorch(case(1e-3 * normal(3, 7), *vectors().args[1:], **eps)) for eps in ({}, {"eps": 1e-7})),
)
constant = torch.full((3, 4), 5.0), normal(4, seed=1), normal(4, seed=2)
ex.cases(
    "a vector of equal numbers gives the bias",
    case(*constant).gives(constant[2].expand(3, 4)),
)
ex.gradients("gradients of a vector of equal numbers, and none of them NaN", case(*constant).to(torch.float64))
BIG = torch.tensor(
    [[9_997.0, 9_999, 10_001, 10_003], [10_000, 10_000, 10_004, 10_004], [9_996, 10_000, 10_000, 10_004]]
)
ex.cases(
    "numbers near 10,000 are as exact as others",
    *(
        case(big, torch.ones(4), torch.zeros(4)).gives(F.layer_norm(big.double(), (4,)).float())
        for big in (BIG, BIG + 2_000, -BIG)
    ),
)


def over_tokens(x, gain, bias, eps=1e-5):
    variance, mean = torch.var_mean(x, dim=max(-2, -x.ndim), correction=0, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


VARIANCE = "centred.square().mean(dim=-1, keepdim=True)"
ex.mistake(
    "the variance divided by d_model - 1",
    {VARIANCE: "x.var(dim=-1, keepdim=True)"},
    hint="`torch.var` divides by d_model - 1, LayerNorm by d_model: take the mean of the squares, or `correction=0`.",
)
ex.mistake(
    "eps outside the root",
    {"torch.sqrt(variance + eps)": "(torch.sqrt(variance) + eps)"},
    hint="eps is added to the variance, and then the root is taken: `torch.sqrt(variance + eps)`.",
)
ex.mistake(
    "`torch.std`, and eps outside the root",
    {"torch.sqrt(variance + eps)": "(x.std(dim=-1, keepdim=True) + eps)"},
    hint="Two things: `torch.std` divides by d_model - 1, LayerNorm by d_model; and eps belongs under the root.",
)
ex.mistake(
    "the mean over the tokens",
    over_tokens,
    hint="Mean and variance are those of *one* vector: the last dimension, `dim=-1`. No token may look at another one.",
)
ex.mistake(
    "the mean over the first dimension",
    {"x.mean(dim=-1": "x.mean(dim=0", "square().mean(dim=-1": "square().mean(dim=0"},
    hint="Mean and variance are those of *one* vector: the last dimension, `dim=-1`. The first one is the batch, or "
    "the tokens: a vector must not depend on the other ones.",
)
ex.mistake(
    "the mean over all numbers",
    {"x.mean(dim=-1, keepdim=True)": "x.mean()", VARIANCE: "centred.square().mean()"},
    hint="Every vector has a mean and a variance of its own: `mean(dim=-1, keepdim=True)`.",
)
ex.mistake(
    "the root is forgotten",
    {"torch.sqrt(variance + eps)": "(variance + eps)"},
    hint="Divide by the root of the variance. Otherwise the result has not variance 1.",
)
ex.mistake(
    "the mean is not subtracted from what is divided",
    {"return centred": "return x"},
    hint="The result must have mean 0: divide `x - mean`, not `x`.",
)
ex.mistake(
    "no mean anywhere",
    {"x - x.mean(dim=-1, keepdim=True)": "x"},
    hint="Subtract the mean of each vector first. (Without it this is RMSNorm, which lesson 12 is about.)",
)
ex.mistake("gain is not used", {" * gain": ""}, hint="Multiply by `gain` before you add `bias`.")
ex.mistake("bias is not used", {" + bias": ""}, hint="Add `bias` at the end.")
ex.mistake(
    "the bias is multiplied by gain, too",
    {"centred / torch.sqrt(variance + eps) * gain + bias": "(centred / torch.sqrt(variance + eps) + bias) * gain"},
    hint="First times `gain`, then plus `bias`.",
)
ex.mistake(
    "times the sum of gain and bias",
    {" * gain + bias": " * (gain + bias)"},
    hint="First times `gain`, then plus `bias`: no brackets around the two.",
)
ex.mistake(
    "the mean of the squares minus the square of the mean",
    {VARIANCE: "x.square().mean(dim=-1, keepdim=True) - x.mean(dim=-1, keepdim=True).square()"},
    hint="On paper that is the same. In float32 two large numbers are subtracted that agree in all digits that are "
    "kept, and nothing is left. Subtract the mean first, then take the squares.",
)
ex.mistake(
    "always the same eps",
    {"variance + eps": "variance + 1e-5"},
    hint="Take the `eps` that is given.",
)
ex.mistake(
    "no eps",
    {"variance + eps": "variance"},
    hint="Where all numbers of a vector are equal, the variance is 0, and 0 / 0 is NaN. Add `eps` to the variance.",
)
ex.mistake(
    "the mean distance instead of the variance",
    {"centred.square()": "centred.abs()"},
    hint="The variance is the mean of the *squared* distances.",
)

# ---- mlp -----------------------------------------------------------------------------------------------------

ex = Exercise(
    transformer_block.mlp,
    points=1,
    minutes=5,
    hints=(
        "Three steps: up, ReLU, down. A linear layer is a product with its matrix, plus its bias.",
        "`x @ w_up + b_up` has d_hidden numbers for every vector. `torch.relu` makes negative numbers 0.",
        "`torch.relu(x @ w_up + b_up) @ w_down + b_down`. The vectors are the rows of `x`, so they stand left of `@`. "
        "`F.linear` transposes its matrix: it would need `w_up.T`.",
    ),
)

ex.cases(
    "four vectors that you can follow",
    case(
        torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]),
        *(torch.tensor([[1.0, -1.0], [1.0, -1.0]]), torch.zeros(2)),
        *(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([-1.0, 0.0])),
    )
    .gives(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]]))
    .noted("the example in the text"),
    case(
        *(torch.tensor([2.0, 1.0]), torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, 1.0]]), torch.tensor([0.0, 0.0, 5.0])),
        *(torch.tensor([[1.0, 0.0], [10.0, 0.0], [0.0, 1.0]]), torch.tensor([0.0, 7.0])),
    )
    .gives(torch.tensor([2.0, 13.0]))
    .noted("hidden: 2, 0 and 6"),
)
ex.promises(ex.inputs(d_model=5, d_hidden=8), "leading", "sizes", "dtypes", "gradients", "device")
square = case(*(normal(2, 3, 3), normal(3, 4, seed=1), normal(4, seed=2), normal(4, 3, seed=3), normal(3, seed=4)))
ex.cases("as many vectors as numbers in a vector", square)


@ex.check("one vector does not change the others")
def _(answer, rng):
    x, *weights = square.args
    other = x.clone()
    other[:, 1] += 1
    expect(answer(other, *weights)[:, [0, 2]], answer(x, *weights)[:, [0, 2]], "vectors 0 and 2, when vector 1 changes")


ex.mistake(
    "no ReLU",
    {"torch.relu(x @ w_up + b_up)": "(x @ w_up + b_up)"},
    hint="Without the ReLU two linear layers are one linear layer. It stands between them.",
)
ex.mistake(
    "the ReLU after the second layer",
    {"torch.relu(x @ w_up + b_up) @ w_down + b_down": "torch.relu((x @ w_up + b_up) @ w_down + b_down)"},
    hint="The ReLU stands *between* the layers. The output may be negative.",
)
ex.mistake(
    "a ReLU after both layers",
    {"torch.relu(x @ w_up + b_up) @ w_down + b_down": "torch.relu(torch.relu(x @ w_up + b_up) @ w_down + b_down)"},
    hint="There is one ReLU, between the layers. The output may be negative.",
)
ex.mistake(
    "the ReLU before the bias",
    {"torch.relu(x @ w_up + b_up)": "(torch.relu(x @ w_up) + b_up)"},
    hint="`b_up` belongs to the first layer: add it before the ReLU.",
)
ex.mistake("the first bias is forgotten", {" + b_up": ""}, hint="The first layer has a bias, too: `x @ w_up + b_up`.")
ex.mistake("the second bias is forgotten", {" + b_down": ""}, hint="The second layer has a bias, too: add `b_down`.")
ex.mistake(
    "no biases",
    {" + b_up": "", " + b_down": ""},
    hint="Both layers have a bias: `b_up` before the ReLU, `b_down` at the end.",
)
ex.mistake(
    "GELU instead of ReLU",
    {"torch.relu(": "torch.nn.functional.gelu("},
    hint="Many models use GELU, but this MLP has a ReLU: `torch.relu`.",
)
ex.mistake(
    "sigmoid instead of ReLU",
    {"torch.relu(": "torch.sigmoid("},
    hint="Between the layers stands a ReLU: what is negative becomes 0, what is positive stays.",
)
ex.mistake(
    "the MLP over the wrong axis",
    lambda x, w_up, b_up, w_down, b_down: (torch.relu(x.mT @ w_up + b_up) @ w_down + b_down).mT,
    hint="Yours mixes the tokens. Each vector, a row of `x`, goes through the MLP on its own: `x @ w_up`.",
)
ex.mistake(
    "the input is added",
    {"return ": "return x + "},
    hint="The residual connection belongs to the block. The MLP gives only what it has made of `x`.",
)

# ---- post_norm_block -----------------------------------------------------------------------------------------

ex = Exercise(
    transformer_block.post_norm_block,
    points=2,
    minutes=10,
    hints=(
        "Two halves that look alike: a part, add what went in, a norm. What does the second half start from?",
        "The first half is `norm_1(x + attention(x))`. The second one does the same with `mlp` and `norm_2`, and "
        "starts from the result of the first.",
        "`x = norm_1(x + attention(x))`, then return `norm_2(x + mlp(x))`: both `x` here are the new one.",
    ),
)


def doubled(x):
    return 2 * x


def halved(x):
    return x / 2


def squared(x):
    return x * x


def third(x):
    return x / 3


class Mixes(nn.Module):
    """In place of an attention: every vector gets something of the mean of all."""

    def __init__(self, d_model):
        super().__init__()
        self.w = nn.Parameter(normal(d_model, d_model, seed=5) / d_model**0.5)

    def forward(self, x):
        note("asked of attention", [x])
        return torch.tanh((x + x.mean(dim=-2, keepdim=True)) @ self.w)


class Hidden(nn.Module):
    """In place of an MLP."""

    def __init__(self, d_model):
        super().__init__()
        self.w = nn.Parameter(normal(d_model, d_model, seed=6) / d_model**0.5)

    def forward(self, x):
        note("asked of the MLP", [x])
        return torch.relu(x @ self.w) + 1


class Norm(nn.Module):
    """A norm with a gain and a bias of its own."""

    def __init__(self, d_model, seed):
        super().__init__()
        self.gain, self.bias = (nn.Parameter(normal(d_model, seed=seed + i)) for i in (0, 1))
        self.seed = seed

    def forward(self, x):
        note(f"asked of norm {self.seed}", [x])
        return F.layer_norm(x, self.gain.shape, self.gain, self.bias)


def block(*leading, tokens=5, d_model=6):
    parts = Mixes(d_model), Hidden(d_model), Norm(d_model, 7), Norm(d_model, 17)
    return case(normal(*leading, tokens, d_model), *parts)


def expect_pytorchs_block(answer, norm_first):
    """With the parts of PyTorch's block of this order, the answer gives what that block gives."""
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0, batch_first=True, norm_first=norm_first)
    for norm in (theirs.norm1, theirs.norm2):
        nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    x = normal(2, 5, 12)

    def attention(x):
        return theirs.self_attn(x, x, x, need_weights=False)[0]

    def mlp(x):
        return theirs.linear2(torch.relu(theirs.linear1(x)))

    expect(answer(x, attention, mlp, theirs.norm1, theirs.norm2).detach(), theirs(x).detach(), "the block's output")


def expect_calls(answer, *wanted):
    """The answer calls each part once, in this order."""
    asked = []

    def named(name, part):
        def call(x):
            asked.append(name)
            return part(x)

        return call

    x, *parts = block(2).args
    answer(x, *map(named, ("attention", "mlp", "norm_1", "norm_2"), parts))
    expect(asked, [*wanted], "the calls")


ex.cases(
    "one number that you can follow",
    case(torch.tensor([[4.0]]), doubled, squared, halved, third)
    .gives(torch.tensor([[14.0]]))
    .noted("4 + 8 = 12, halved 6, then 6 + 36 = 42, a third of it 14"),
)
ex.promises(block, "leading", "sizes", "dtypes", "gradients", "device")


@ex.check("a real block of PyTorch")
def _(answer, rng):
    expect_pytorchs_block(answer, norm_first=False)


@ex.check("every part is called once, the attention first")
def _(answer, rng):
    expect_calls(answer, "attention", "norm_1", "mlp", "norm_2")


FIRST, SECOND = "x = norm_1(x + attention(x))", "return norm_2(x + mlp(x))"
ex.mistake(
    "the norm before the parts",
    {FIRST: "x = x + attention(norm_1(x))", SECOND: "return x + mlp(norm_2(x))"},
    hint="That is the other order, pre-norm: lesson 12 is about it. In this one each norm comes *after* its sum.",
)
ex.mistake(
    "the input is added to the normed input",
    {FIRST: "x = norm_1(x); x = x + attention(x)", SECOND: "x = norm_2(x); return x + mlp(x)"},
    hint="In this order nothing is normed before the attention. Add `x` to `attention(x)`, then norm the sum.",
)
ex.mistake(
    "no residual connections",
    {FIRST: "x = norm_1(attention(x))", SECOND: "return norm_2(mlp(x))"},
    hint="What goes into a part is added to what comes out of it: `x + attention(x)`.",
)
ex.mistake(
    "nothing is added to the attention",
    {"norm_1(x + attention(x))": "norm_1(attention(x))"},
    hint="The attention has a residual connection, too: `x + attention(x)`.",
)
ex.mistake(
    "nothing is added to the MLP",
    {"norm_2(x + mlp(x))": "norm_2(mlp(x))"},
    hint="The MLP has a residual connection, too: `x + mlp(x)`, with the `x` that went into the MLP.",
)
ex.mistake(
    "the block's input is added to the MLP",
    {FIRST: "y = norm_1(x + attention(x))", SECOND: "return norm_2(x + mlp(y))"},
    hint="To the MLP's output you add what went into *the MLP*: the result of the first half.",
)
ex.mistake(
    "the norms exchanged",
    {FIRST: "x = norm_2(x + attention(x))", SECOND: "return norm_1(x + mlp(x))"},
    hint="`norm_1` belongs to the attention, `norm_2` to the MLP. Each has a gain and a bias of its own.",
)
ex.mistake(
    "`norm_1` twice",
    {"norm_2": "norm_1"},
    hint="The second half has a norm of its own: `norm_2`.",
)
ex.mistake(
    "the part is normed, not the sum",
    {"norm_1(x + attention(x))": "x + norm_1(attention(x))", "norm_2(x + mlp(x))": "x + norm_2(mlp(x))"},
    hint="First add, then norm: `norm_1(x + attention(x))`.",
)
ex.mistake(
    "the MLP's output is normed, not the sum",
    {"norm_2(x + mlp(x))": "x + norm_2(mlp(x))"},
    hint="In the second half, too: first add, then norm the sum, `norm_2(x + mlp(x))`.",
)
ex.mistake(
    "the attention's output is normed, not the sum",
    {"norm_1(x + attention(x))": "x + norm_1(attention(x))"},
    hint="In the first half, too: first add, then norm the sum, `norm_1(x + attention(x))`.",
)
ex.mistake(
    "what is added to the MLP is normed, not the sum",
    {"norm_2(x + mlp(x))": "norm_2(x) + mlp(x)"},
    hint="`norm_2` is for the whole sum: `norm_2(x + mlp(x))`.",
)
ex.mistake(
    "the MLP reads the sum before it is normed",
    {FIRST: "y = x + attention(x)", SECOND: "return norm_2(norm_1(y) + mlp(y))"},
    hint="`norm_1` comes before the second half: the MLP reads the normed sum, and the same is added to its output.",
)
ex.mistake(
    "the norms are forgotten",
    {"norm_1(x + attention(x))": "x + attention(x)", "norm_2(x + mlp(x))": "x + mlp(x)"},
    hint="Each sum is normed: by `norm_1` after the attention, by `norm_2` after the MLP.",
)
ex.mistake(
    "no norm after the attention",
    {"norm_1(x + attention(x))": "x + attention(x)"},
    hint="The sum of the first half is normed, too: `norm_1(x + attention(x))`.",
)
ex.mistake(
    "no norm after the MLP",
    {"norm_2(x + mlp(x))": "x + mlp(x)"},
    hint="The sum of the second half is normed, too: `norm_2(x + mlp(x))`.",
)
ex.mistake(
    "the MLP first",
    lambda x, attention, mlp, norm_1, norm_2: norm_1((y := norm_2(x + mlp(x))) + attention(y)),
    hint="First the attention, then the MLP.",
)
ex.mistake(
    "the attention is computed twice",
    {FIRST: "y = norm_1(x + attention(x))", SECOND: "return norm_2(norm_1(x + attention(x)) + mlp(y))"},
    hint="The numbers are right, but attention is the expensive part: keep the result of the first half in a variable.",
)
ex.mistake(
    "attention and MLP side by side",
    {FIRST: "y = norm_1(x + attention(x))", SECOND: "return norm_2(y + mlp(x))"},
    hint="The MLP reads the result of the first half, not the block's input.",
)

# ---- count_parameters ----------------------------------------------------------------------------------------

ex = Exercise(
    transformer_block.count_parameters,
    points=1,
    minutes=10,
    hints=(
        "Make a list first: which matrices has the attention, which the MLP, which vectors have the norms? What are "
        "their shapes?",
        "Six matrices, a bias for each of them, and a gain and a bias for each of two norms.",
        "The attention has four matrices (d_model, d_model). A bias has one number for each output of its layer. Or "
        "build the block and add up `p.numel()` of its `parameters()`.",
    ),
)

ex.cases("2 numbers in a vector, 3 hidden ones: 49", case(2, 3).gives(49))


def real_count(d_model, d_hidden):
    layer = nn.TransformerEncoderLayer(d_model, 1, d_hidden, device="meta")
    return case(d_model, d_hidden).gives(sum(p.numel() for p in layer.parameters()))


ex.cases("as many as in PyTorch's block", real_count(12, 20), real_count(64, 256), real_count(6, 1), real_count(1, 6))
ex.cases("the block of 2017, and a large one", real_count(512, 2048), real_count(4096, 16_384))

ex.mistake(
    "no biases",
    {
        "d_model * d_model + d_model)": "d_model * d_model)",
        "d_model * d_hidden + d_hidden + d_hidden * d_model + d_model": "2 * d_model * d_hidden",
    },
    hint="Each of the six matrices has a bias. It has one number for each output of its layer.",
)
ex.mistake(
    "matrices only",
    {
        "d_model * d_model + d_model)": "d_model * d_model)",
        "d_model * d_hidden + d_hidden + d_hidden * d_model + d_model": "2 * d_model * d_hidden",
        "2 * (d_model + d_model)": "0",
    },
    hint="You have all six matrices. Each of them has a bias, and each of the two norms has a gain and a bias.",
)
ex.mistake(
    "no biases anywhere",
    {
        "d_model * d_model + d_model)": "d_model * d_model)",
        "d_model * d_hidden + d_hidden + d_hidden * d_model + d_model": "2 * d_model * d_hidden",
        "2 * (d_model + d_model)": "2 * d_model",
    },
    hint="You have the matrices and one vector for each norm. All six matrices have a bias, and so have both norms.",
)
ex.mistake(
    "no biases in the attention, or no norms",
    {"d_model * d_model + d_model)": "d_model * d_model)"},
    hint="4 · d_model numbers are missing: as many as the biases of the attention have, or the gains and biases "
    "of the two norms.",
)
ex.mistake(
    "no biases in the MLP",
    {"d_model * d_hidden + d_hidden + d_hidden * d_model + d_model": "2 * d_model * d_hidden"},
    hint="Both layers of the MLP have a bias: d_hidden numbers in the first one, d_model in the second.",
)
ex.mistake(
    "both biases of the MLP have d_model numbers",
    {"d_model * d_hidden + d_hidden +": "d_model * d_hidden + d_model +"},
    hint="A bias has one number for each *output*. The first layer has d_hidden outputs.",
)
ex.mistake(
    "one norm, or norms with a gain only",
    {"2 * (d_model + d_model)": "d_model + d_model"},
    hint="The block has two norms. Each has a gain *and* a bias, with d_model numbers each.",
)
ex.mistake(
    "norms with one gain and one bias for all numbers",
    {"2 * (d_model + d_model)": "4"},
    hint="Gain and bias are vectors: one number for each of the d_model numbers.",
)
ex.mistake(
    "the output projection is forgotten",
    {"4 * (": "3 * ("},
    hint="The attention has four matrices: queries, keys, values, and the output projection.",
)
ex.mistake(
    "one matrix in the MLP",
    {"+ d_hidden * d_model + d_model": ""},
    hint="The MLP has two layers: up to d_hidden, and down again.",
)
ex.mistake(
    "the hidden size is always 4 · d_model",
    {"mlp = ": "d_hidden = 4 * d_model\n    mlp = "},
    hint="Four times is usual, but not always so: take the `d_hidden` that is given.",
)
ex.mistake("a float", {"return": "return 1.0 *"}, hint="It is a count: return an int.")
