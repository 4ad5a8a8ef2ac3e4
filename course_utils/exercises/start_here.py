"""Lesson 00's exercise: `softmax`, the warm-up."""

import torch

from course_utils.exercises import Exercise, case, expect, normal
from course_utils.lessons import start_here

ex = Exercise(
    start_here.softmax,
    points=1,
    minutes=5,
    hints=(
        "torch.exp works on a whole tensor. To divide each row by its own sum, keep the summed dimension: "
        "`x.sum(dim=-1, keepdim=True)`.",
        "exp(1000) is inf, and inf / inf is nan. Subtracting the same number from every score changes nothing in "
        "the quotient, because exp(a - c) = exp(a) / exp(c). Which number makes all exponents at most 0?",
        "Subtract the largest score of each row: `scores - scores.max(dim=-1, keepdim=True).values`.",
    ),
)

ex.cases("three scores", case(torch.tensor([1.0, 2.0, 3.0])).gives(torch.tensor([0.090031, 0.244728, 0.665241])))
ex.cases("each row of a matrix on its own", case(normal(5, 7)).gives(torch.softmax(normal(5, 7), dim=-1)))
ex.cases(
    "large scores, of both signs, each row by itself",
    case(torch.tensor([[1000.0, 1001.0], [-1001.0, -1000.0], [-500.0, 500.0]])),
)
ex.cases(
    "a score of -inf gets no weight, however small the others are",
    case(torch.tensor([0.5, -torch.inf, 1.5])),
    case(torch.tensor([-1e30, -torch.inf])).gives(torch.tensor([1.0, 0.0])),
)


@ex.check("the weight of -inf is exactly 0")
def _(answer, rng):
    weights = answer(torch.tensor([0.5, -torch.inf, 1.5]))
    expect(weights, torch.softmax(torch.tensor([0.5, -torch.inf, 1.5]), dim=-1), "scores [0.5, -inf, 1.5]")
    expect(float(weights[1]) == 0.0, True, "scores [0.5, -inf, 1.5]: the second weight is exactly 0")


ex.promises(ex.inputs(n=4), "leading", "sizes", "dtypes", "gradients", "device")

ex.mistake(
    "exp without subtracting the largest score",
    {"scores - largest": "scores"},
    hint="exp(1000) is inf in every dtype, and inf / inf is nan.",
)
ex.mistake(
    "one largest score for the whole tensor",
    {"scores.max(dim=-1, keepdim=True).values": "scores.max()"},
    hint="Each row needs its own maximum, or all its powers can become 0: `max(dim=-1, keepdim=True).values`.",
)
ex.mistake(
    "the sum over all scores instead of over each row",
    {"powers.sum(dim=-1, keepdim=True)": "powers.sum()"},
    hint="`x.sum()` adds the whole tensor. Say which dimension to add: `x.sum(dim=-1, keepdim=True)`.",
)
ex.mistake(
    "the sum over all scores, and no largest score subtracted",
    {"scores - largest": "scores", "powers.sum(dim=-1, keepdim=True)": "powers.sum()"},
    hint="Two things: `x.sum()` adds the whole tensor, not each row. And exp(1000) is inf: subtract the largest score.",
)
ex.mistake(
    "the sum without `keepdim`",
    {"sum(dim=-1, keepdim=True)": "sum(dim=-1)"},
    hint="Without `keepdim=True` the sums of a (5, 7) matrix have shape (5,), and do not stand beside their rows.",
)
ex.mistake(
    "the sum over the first dimension",
    lambda scores: torch.softmax(scores, dim=0),
    hint="`dim=0` goes down the columns. The last dimension, `dim=-1`, goes along a row.",
)
ex.mistake(
    "divided by the largest value, not by the sum",
    {"powers / powers.sum(dim=-1, keepdim=True)": "powers"},
    hint="The weights must sum to 1: divide by the sum of the exponentials.",
)
ex.mistake(
    "exp alone",
    lambda scores: torch.exp(scores),
    hint="That is not yet a softmax: divide by the sum of each row, so that the weights sum to 1.",
)
ex.mistake(
    "the mean subtracted, not the largest score",
    {"scores.max(dim=-1, keepdim=True).values": "scores.mean(dim=-1, keepdim=True)"},
    hint="A score far above the mean still has an exponential of inf. Subtract the *largest* score of each row.",
)
ex.mistake(
    "the sigmoid of each score",
    lambda scores: torch.sigmoid(scores),
    hint="A sigmoid looks at one score alone, so the weights of a row need not sum to 1. Divide exponentials by their "
    "sum.",
)
ex.mistake(
    "no exponential",
    {"torch.exp(scores - largest)": "scores"},
    hint="Raise e to the power of each score first: that is what makes every weight positive.",
)
ex.mistake(
    "the logarithm of the softmax",
    lambda scores: torch.log_softmax(scores, dim=-1),
    hint="`log_softmax` gives logarithms, which are negative. The weights themselves are asked for.",
)
