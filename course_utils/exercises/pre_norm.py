"""Lesson 12's exercises: norms inside the branches, a norm without a mean, gates in the MLP, a choice of experts."""

import math

import torch
import torch.nn.functional as F

from course_utils.exercises import Exercise, case, normal
from course_utils.exercises.transformer_block import (
    block,
    doubled,
    expect_calls,
    expect_pytorchs_block,
    halved,
    squared,
)
from course_utils.lessons import pre_norm, transformer_block

# ---- pre_norm_block ------------------------------------------------------------------------------------------

ex = Exercise(
    transformer_block.pre_norm_block,
    lesson="pre_norm",
    points=1,
    minutes=10,
    hints=(
        "The line from `x` to the result passes two plus signs and nothing else. Where do the norms stand, if not on "
        "this line?",
        "The first half adds `attention(norm_1(x))` to `x`. The second half does the same with `mlp` and `norm_2`, and "
        "starts from the result of the first.",
        "`x = x + attention(norm_1(x))`, then return `x + mlp(norm_2(x))`. What is added to is `x`, not `norm_1(x)`.",
    ),
)


def quartered(x):
    return x / 4


def nothing(x):
    return torch.zeros_like(x)


ex.cases(
    "one number that you can follow",
    case(torch.tensor([[4.0]]), doubled, squared, halved, quartered)
    .gives(torch.tensor([[12.0]]))
    .noted("half of 4 is 2, doubled 4, so 4 + 4 = 8; a quarter of 8 is 2, squared 4, so 8 + 4 = 12"),
)
ex.promises(block, "leading", "sizes", "dtypes", "gradients", "device")
x, _, _, norm_1, norm_2 = block(2).args
ex.cases(
    "parts that give zero change nothing at all",
    case(x, nothing, nothing, norm_1, norm_2).gives(x).noted("attention and mlp give zeros"),
    case(1e4 * x, nothing, nothing, norm_1, norm_2).gives(1e4 * x).noted("large vectors, and zeros from both parts"),
)


@ex.check("a real block of PyTorch")
def _(answer, rng):
    expect_pytorchs_block(answer, norm_first=True)


@ex.check("every part is called once, each norm before its part")
def _(answer, rng):
    expect_calls(answer, "norm_1", "attention", "norm_2", "mlp")


FIRST, SECOND = "x = x + attention(norm_1(x))", "return x + mlp(norm_2(x))"
ex.mistake(
    "the norms behind the sums",
    {FIRST: "x = norm_1(x + attention(x))", SECOND: "return norm_2(x + mlp(x))"},
    hint="That is Post-LN, lesson 08's block. In pre-norm a sum is never normed: the norm stands in front of the part.",
)
ex.mistake(
    "the second sum is normed",
    {SECOND: "return norm_2(x + mlp(x))"},
    hint="The first half is right. The second is Post-LN: there, too, the norm belongs in front of the part.",
)
ex.mistake(
    "the first sum is normed",
    {FIRST: "x = norm_1(x + attention(x))"},
    hint="The second half is right. The first is Post-LN: there, too, the norm belongs in front of the part.",
)
ex.mistake(
    "the normed copy is added, not the vectors",
    {FIRST: "x = norm_1(x); x = x + attention(x)", SECOND: "x = norm_2(x); return x + mlp(x)"},
    hint="The part reads the normed copy, but the sum starts from `x` as it came: keep it under its own name.",
)
ex.mistake(
    "the norm behind the part",
    {FIRST: "x = x + norm_1(attention(x))", SECOND: "return x + norm_2(mlp(x))"},
    hint="The norm stands in front of the part: `attention(norm_1(x))`. Yours norms what the part gives, so that its "
    "output can never be small.",
)
ex.mistake(
    "no residual connections",
    {FIRST: "x = attention(norm_1(x))", SECOND: "return mlp(norm_2(x))"},
    hint="What the parts give is added to `x`, in both halves.",
)
ex.mistake(
    "nothing is added to the attention",
    {FIRST: "x = attention(norm_1(x))"},
    hint="The attention has a residual connection, too: `x + attention(norm_1(x))`.",
)
ex.mistake(
    "nothing is added to the MLP",
    {SECOND: "return mlp(norm_2(x))"},
    hint="The MLP has a residual connection, too: `x + mlp(norm_2(x))`.",
)
ex.mistake(
    "no norms",
    {FIRST: "x = x + attention(x)", SECOND: "return x + mlp(x)"},
    hint="Each part reads a normed copy: `norm_1(x)` for the attention, `norm_2(x)` for the MLP.",
)
ex.mistake(
    "the attention reads what is not normed",
    {FIRST: "x = x + attention(x)"},
    hint="The attention reads a normed copy, too: `attention(norm_1(x))`.",
)
ex.mistake(
    "the MLP reads what is not normed",
    {SECOND: "return x + mlp(x)"},
    hint="The MLP reads a normed copy, too: `mlp(norm_2(x))`.",
)
ex.mistake(
    "one more norm at the end",
    {SECOND: "return norm_2(x + mlp(norm_2(x)))"},
    hint="The last norm of a pre-norm model stands behind the last *block*, once. Inside a block nothing on the path "
    "of `x` is normed.",
)
ex.mistake(
    "the block's input is added to the MLP",
    {FIRST: "y = x + attention(norm_1(x))", SECOND: "return x + mlp(norm_2(y))"},
    hint="The MLP's output is added to the result of the first half. Yours loses what the attention has found.",
)
ex.mistake(
    "attention and MLP side by side",
    {FIRST: "y = x + attention(norm_1(x))", SECOND: "return y + mlp(norm_2(x))"},
    hint="The MLP reads the result of the first half, not the block's input. (Some models do it your way.)",
)
ex.mistake(
    "the norms exchanged",
    {FIRST: "x = x + attention(norm_2(x))", SECOND: "return x + mlp(norm_1(x))"},
    hint="`norm_1` belongs to the attention, `norm_2` to the MLP. Each has a gain and a bias of its own.",
)
ex.mistake("`norm_1` twice", {"norm_2(x)": "norm_1(x)"}, hint="The second half has a norm of its own: `norm_2`.")
ex.mistake(
    "the MLP first",
    lambda x, attention, mlp, norm_1, norm_2: (y := x + mlp(norm_2(x))) + attention(norm_1(y)),
    hint="First the attention, then the MLP.",
)
ex.mistake(
    "the attention is forgotten",
    {FIRST: "x = x * 1"},
    hint="The block has two halves, and the first one is the attention.",
)
ex.mistake(
    "the attention is computed twice",
    {FIRST: "y = x + attention(norm_1(x))", SECOND: "return x + attention(norm_1(x)) + mlp(norm_2(y))"},
    hint="The numbers are right, but attention is the expensive part: keep the result of the first half in a variable.",
)

# ---- rms_norm ------------------------------------------------------------------------------------------------

ex = Exercise(
    pre_norm.rms_norm,
    points=1,
    minutes=10,
    hints=(
        "Read the name from its end: squares, their mean, the root of it. That is the size of a vector.",
        "`x.square().mean(dim=-1, keepdim=True)` is the mean of the squares of each vector. Lesson 08's `layer_norm` "
        "without two of its steps.",
        "`x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps) * gain`.",
    ),
)


def ones(n):
    return torch.ones(n)


def vectors(*leading, d_model=5):
    return case(normal(*leading, d_model), normal(d_model, seed=1))


ex.cases(
    "two numbers that you can follow",
    case(torch.tensor([1.0, 7.0]), ones(2), 0.0)
    .gives(torch.tensor([0.2, 1.4]))
    .noted("the squares are 1 and 49, their mean is 25, its root 5"),
    case(torch.tensor([1.0, 7.0]), torch.tensor([10.0, -1.0]), 0.0)
    .gives(torch.tensor([2.0, -1.4]))
    .noted("with gains"),
)
ex.cases("nothing is subtracted", case(torch.full((3, 4), 5.0), ones(4), 0.0).gives(torch.ones(3, 4)))
ex.cases(
    "eps is added under the root",
    case(torch.tensor([0.3, 0.4]), ones(2), 0.125).gives(torch.tensor([0.6, 0.8])),
    case(normal(4, 6), normal(6, seed=1), 0.5),
    case(1e-3 * normal(4, 6), normal(6, seed=1)).noted("small vectors, the usual eps"),
)
ex.cases("as PyTorch's own", case(x := normal(3, 7), g := normal(7, seed=1)).gives(F.rms_norm(x, (7,), g, 1e-5)))
ex.promises(vectors, "leading", "sizes", "dtypes", "gradients", "device")
ex.gradients(
    "a vector of zeros, and its gradient",
    case(torch.zeros(2, 4, dtype=torch.float64), normal(4, seed=1, dtype=torch.float64)),
)
ex.cases("as many vectors as numbers in a vector", case(normal(5, 5), normal(5, seed=1)))

SQUARES = "mean_square = x.square().mean(dim=-1, keepdim=True)"
ROOT = "torch.rsqrt(mean_square + eps)"
ex.mistake(
    "the mean is subtracted",
    {SQUARES: "x = x - x.mean(dim=-1, keepdim=True); " + SQUARES},
    hint="That is LayerNorm without its bias. RMSNorm subtracts nothing: a vector of fives becomes a vector of ones.",
)
ex.mistake(
    "divided by the deviation from the mean",
    {SQUARES: "mean_square = x.var(dim=-1, keepdim=True, correction=0)"},
    hint="The variance is measured from the mean. Here the squares of the numbers themselves count: `x.square()`.",
)
ex.mistake(
    "the sum of the squares instead of their mean",
    {".mean(": ".sum("},
    hint="Divided by its length a vector has the length 1. RMSNorm makes the *mean* of the squares 1: a wider vector "
    "stays longer.",
)
ex.mistake(
    "divided by d_model - 1",
    {SQUARES: "mean_square = x.square().sum(dim=-1, keepdim=True) / max(x.shape[-1] - 1, 1)"},
    hint="It is a plain mean: divided by d_model.",
)
ex.mistake(
    "no root",
    {ROOT: "1 / (mean_square + eps)"},
    hint="Divide by the *root* of the mean of the squares. Without it, a vector twice as long comes out half as long.",
)
ex.mistake(
    "the mean of the absolute values",
    {SQUARES: "mean_square = x.abs().mean(dim=-1, keepdim=True).square()"},
    hint="Square the numbers first, then take the mean, then the root.",
)
ex.mistake(
    "eps outside the root",
    {ROOT: "1 / (mean_square.sqrt() + eps)"},
    hint="`eps` is added to the mean of the squares, under the root.",
)
ex.mistake(
    "eps forgotten",
    {" + eps": ""},
    hint="Without `eps` a vector of zeros is divided by zero.",
)
ex.mistake("always the same eps", {" + eps": " + 1e-5"}, hint="Use the `eps` that is given: 1e-5 is only its default.")
ex.mistake("the gain is forgotten", {" * gain": ""}, hint="At the end every number is multiplied by its gain.")
ex.mistake(
    "1 + gain",
    {" * gain": " * (1 + gain)"},
    hint="Some models store the gain minus 1. Here the gain itself is given: multiply by `gain`.",
)
ex.mistake(
    "one mean for all vectors",
    {".mean(dim=-1, keepdim=True)": ".mean()"},
    hint="Every vector has a size of its own: the mean over its d_model numbers, `dim=-1`.",
)
ex.mistake(
    "the dimension is not kept",
    {".mean(dim=-1, keepdim=True)": ".mean(dim=-1)"},
    hint="The means have lost the last dimension, so they meet the wrong numbers. Keep it: `keepdim=True`.",
)
ex.mistake(
    "over the tokens",
    {".mean(dim=-1, keepdim=True)": ".mean(dim=0, keepdim=True)"},
    hint="The mean goes over the numbers of one vector, the last dimension, not over the tokens.",
)
ex.mistake(
    "the size is taken as fixed",
    {ROOT: ROOT + ".detach()"},
    hint="All values are right, but the gradient must also flow through the size of the vector.",
)

# ---- swiglu --------------------------------------------------------------------------------------------------

ex = Exercise(
    pre_norm.swiglu,
    points=1,
    minutes=10,
    hints=(
        "Two matrices read `x`, side by side. Only one of the two results goes through the SiLU. How do they become "
        "one, before `w_down`?",
        "`F.silu(x @ w_gate)` are the gates, as many as `x @ w_up` has numbers. Multiply number by number: `*`, not "
        "`@`.",
        "`(F.silu(x @ w_gate) * (x @ w_up)) @ w_down`. SiLU(z) is `z * torch.sigmoid(z)`.",
    ),
)

ex.cases(
    "three gates that you can follow",
    case(
        torch.tensor([[1.0, 1.0]]),
        torch.tensor([[0.0, 60.0, -60.0], [0.0, 40.0, -40.0]]),
        torch.tensor([[5.0, 0.02, 7.0], [1.0, 0.01, 7.0]]),
        torch.tensor([[9.0, 9.0], [2.0, -1.0], [9.0, 9.0]]),
    )
    .gives(torch.tensor([[6.0, -3.0]]))
    .noted("the gates are 0, 100 and nearly 0; the products 0, 100 · 0.03 = 3 and 0"),
    case(torch.tensor([math.log(3)]), *(torch.tensor([[w]]) for w in (1.0, 4.0, 2.0)))
    .gives(torch.tensor([6 * math.log(3) ** 2]))
    .noted("sigmoid(ln 3) is 0.75, so the gate is 0.75 ln 3"),
)
ex.promises(ex.inputs(d_model=5, d_hidden=8), "leading", "sizes", "dtypes", "gradients", "device")
ex.cases(
    "as many vectors as numbers in a vector, and as hidden numbers",
    case(normal(2, 4, 4), *(normal(4, 4, seed=seed) for seed in (1, 2, 3))),
)

GATES = "F.silu(x @ w_gate) * (x @ w_up)"
ex.mistake(
    "gate and up exchanged",
    {GATES: "F.silu(x @ w_up) * (x @ w_gate)"},
    hint="The SiLU belongs to the gates: `F.silu(x @ w_gate)`.",
)
ex.mistake(
    "a sigmoid instead of the SiLU",
    {"F.silu(": "torch.sigmoid("},
    hint="That is GLU, the oldest of this family. The *Swi* in SwiGLU is SiLU, also called Swish: z · sigmoid(z).",
)
ex.mistake(
    "GELU instead of the SiLU",
    {"F.silu(": "F.gelu("},
    hint="That is GEGLU, a sister. The *Swi* in SwiGLU is SiLU, also called Swish: z · sigmoid(z).",
)
ex.mistake(
    "ReLU instead of the SiLU",
    {"F.silu(": "torch.relu("},
    hint="That is ReGLU, a sister. The *Swi* in SwiGLU is SiLU, also called Swish: z · sigmoid(z).",
)
ex.mistake(
    "no activation",
    {"F.silu(x @ w_gate)": "(x @ w_gate)"},
    hint="The gates go through a SiLU: `F.silu(x @ w_gate)`.",
)
ex.mistake(
    "the SiLU behind the product",
    {GATES: "F.silu((x @ w_gate) * (x @ w_up))"},
    hint="Only the gates go through the SiLU. Then the product, with nothing around it.",
)
ex.mistake(
    "both go through the SiLU",
    {"(x @ w_up)": "F.silu(x @ w_up)"},
    hint="Only the gates go through the SiLU. `x @ w_up` stays as it is.",
)
ex.mistake(
    "a sum instead of a product",
    {GATES: "F.silu(x @ w_gate) + (x @ w_up)"},
    hint="A gate *multiplies*: where it is 0, nothing passes.",
)
ex.mistake(
    "an ordinary MLP",
    {" * (x @ w_up)": ""},
    hint="That is an MLP with SiLU. `w_up` is not used: its numbers are what the gates multiply.",
)
ex.mistake(
    "gates that sum to 1",
    {"F.silu(x @ w_gate)": "torch.softmax(x @ w_gate, dim=-1)"},
    hint="Each gate is opened on its own, with a SiLU. They need not sum to anything.",
)
ex.mistake(
    "the sigmoid of the other one",
    {GATES: "(x @ w_gate) * torch.sigmoid(x @ w_up)"},
    hint="SiLU(z) = z · sigmoid(z), both times with the *same* z, and that is `x @ w_gate`.",
)
ex.mistake(
    "the SiLU at the end",
    {"return (F.silu(x @ w_gate) * (x @ w_up)) @ w_down": "return F.silu(((x @ w_gate) * (x @ w_up)) @ w_down)"},
    hint="The SiLU is for the gates. What comes out of `w_down` is the result.",
)
ex.mistake(
    "the input is added",
    {"return ": "return x + "},
    hint="The residual connection belongs to the block.",
)

# ---- route_top_k ---------------------------------------------------------------------------------------------

ex = Exercise(
    pre_norm.route_top_k,
    points=2,
    minutes=20,
    returns=("gates", "experts"),
    hints=(
        "Two questions, one after the other: which experts? And then, as if there were no others: with which gates?",
        "`sort` gives the values and where they stood. PyTorch keeps equal values in their order only if you ask for "
        "it. Then a softmax over the k logits that are left.",
        "`logits.sort(dim=-1, descending=True, stable=True)` gives values and indices. Take the first k of both. "
        "`torch.topk` is shorter, but it does not promise an order for equal logits.",
    ),
)


def routed(*leading, experts=7):
    return case(normal(*leading, experts), min(experts, 4))


LOGS = torch.tensor([0.0, math.log(3), -1.0, math.log(9)])
ex.cases(
    "four experts that you can follow",
    case(LOGS, 2)
    .gives((torch.tensor([0.75, 0.25]), torch.tensor([3, 1])))
    .noted("the exponentials of the logits are 1, 3, 0.37 and 9"),
    case(LOGS, 1).gives((torch.tensor([1.0]), torch.tensor([3]))),
)
ex.cases(
    "of equal logits, the expert with the smaller number comes first",
    case(torch.tensor([1.0, 2.0, 2.0, 2.0]), 2).gives((torch.tensor([0.5, 0.5]), torch.tensor([1, 2]))),
    case(torch.tensor([[0.0, -0.0, 0.0], [5.0, 5.0, 9.0]]), 2),
    case(torch.zeros(2, 300), 5)
    .gives((torch.full((2, 5), 0.2), torch.arange(5).expand(2, 5)))
    .noted("300 equal ones; `topk`, and `sort` without `stable=True`, promise no order for them"),
    case((torch.arange(64) % 4).float(), 6).noted("16 times 0, 1, 2, 3"),
)
ex.cases(
    "experts that were not chosen do not change the gates",
    case(torch.tensor([2.0, 1.0, 0.9, 0.9, 0.9]), 2),
    case(torch.tensor([2.0, 1.0, -50.0, -50.0, -50.0]), 2),
    case(torch.tensor([1000.0, 999.0, -1000.0]), 2).noted("large logits"),
)
ex.cases(
    "logits far apart are not equal, although their exponentials are too small for float32",
    case(torch.tensor([0.0, -200.0, -150.0]), 2).gives((torch.tensor([1.0, 0.0]), torch.tensor([0, 2]))),
    case(torch.tensor([-300.0, -200.0, 0.0, -250.0]), 4).gives(
        (torch.tensor([1.0, 0, 0, 0]), torch.tensor([2, 1, 3, 0]))
    ),
)
ex.cases("one expert, and all of them", case(normal(3, 6), 1), case(normal(3, 6), 6), case(normal(3, 1), 1))
ex.promises(routed, "leading", "sizes", "dtypes", "gradients", "device")

VALUES = "torch.softmax(ordered[..., :k], dim=-1)"
SORT = "logits.sort(dim=-1, descending=True, stable=True)"
ex.mistake(
    "gates normalised before the choice",
    {VALUES: "torch.softmax(logits, dim=-1).gather(-1, experts[..., :k])"},
    hint="Your softmax goes over *all* experts, so the gates of the chosen ones do not sum to 1. First choose, then "
    "the softmax over the k that are left.",
)
ex.mistake(
    "the softmax before the order",
    lambda logits, k: (
        (found := logits.softmax(dim=-1).sort(dim=-1, descending=True, stable=True)).values[..., :k]
        / found.values[..., :k].sum(dim=-1, keepdim=True),
        found.indices[..., :k],
    ),
    hint="Probabilities of very small logits are all 0, so your order treats them as equal. Sort the *logits*.",
)
ex.mistake(
    "`torch.topk`",
    lambda logits, k: ((found := logits.topk(k, dim=-1)).values.softmax(dim=-1), found.indices),
    hint="`torch.topk` promises no order for equal logits. `sort` does, but only with `stable=True`.",
)
ex.mistake(
    "the logits themselves as gates",
    {VALUES: "ordered[..., :k]"},
    hint="Logits may be negative, and sum to anything. The gates are their softmax, over the chosen experts.",
)
ex.mistake(
    "every gate on its own",
    {VALUES: "torch.sigmoid(ordered[..., :k])"},
    hint="With sigmoids the gates do not sum to 1. Take the softmax over the chosen experts.",
)
ex.mistake(
    "equal gates",
    {VALUES: "torch.ones_like(ordered[..., :k]) / k"},
    hint="The better expert counts more, and without the logits in the gates no gradient reaches the router.",
)
ex.mistake(
    "the smallest logits",
    {"descending=True": "descending=False"},
    hint="A large logit says that an expert suits: take the largest ones.",
)
ex.mistake(
    "of equal logits, the last one first",
    lambda logits, k: (
        torch.softmax((found := logits.flip(-1).sort(dim=-1, descending=True, stable=True)).values[..., :k], dim=-1),
        logits.shape[-1] - 1 - found.indices[..., :k],
    ),
    hint="Of equal logits, the expert with the smaller number comes first.",
)
ex.mistake(
    "the chosen experts in the order of their numbers",
    lambda logits, k: (
        torch.softmax(
            logits.gather(
                -1,
                e := logits.sort(dim=-1, descending=True, stable=True).indices[..., :k].sort(dim=-1).values,
            ),
            dim=-1,
        ),
        e,
    ),
    hint="The right experts, in another order: the one with the largest logit comes first.",
)
ex.mistake(
    "a softmax over the first dimension",
    {VALUES: "torch.softmax(ordered[..., :k], dim=0)"},
    hint="The gates of *one token* sum to 1: the softmax goes over the last dimension.",
)
ex.mistake(
    "no gradient to the router",
    {VALUES: VALUES + ".detach()"},
    hint="All values are right, but the router learns only through the gates: no `detach` there.",
)
ex.mistake(
    "the results exchanged",
    {
        "return torch.softmax(ordered[..., :k], dim=-1), experts[..., :k]": "return experts[..., :k], torch.softmax("
        "ordered[..., :k], dim=-1)"
    },
    hint="First the gates, then the numbers of the experts.",
)
ex.mistake(
    "the last k of the sorted ones",
    {"ordered[..., :k]": "ordered[..., -k:]", "experts[..., :k]": "experts[..., -k:]"},
    hint="They are sorted with the largest first, so the best k are the *first* k.",
)
ex.mistake(
    "one expert too many",
    {"ordered[..., :k]": "ordered[..., : k + 1]", "experts[..., :k]": "experts[..., : k + 1]"},
    hint="Exactly k experts for each token.",
)
ex.mistake(
    "the gates of all experts, with zeros",
    {VALUES: "torch.zeros_like(logits).scatter(-1, experts[..., :k], " + VALUES + ")"},
    hint="Only the gates of the k chosen experts are wanted, in the same order as their numbers.",
)
