"""Lesson 00's exercise: `softmax`, the warm-up."""

import torch

from course_utils.exercises import Exercise, expect
from course_utils.lessons import start_here

ex = Exercise(
    "softmax",
    reference=start_here.softmax,
    points=1,
    seconds=5,
    minutes=5,
    hints=(
        "torch.exp works on a whole tensor. To divide each row by its own sum, keep the summed dimension: "
        "`x.sum(dim=-1, keepdim=True)`.",
        "exp(1000) is inf, and inf / inf is nan. Subtracting the same number from every score changes nothing in "
        "the quotient, because exp(a - c) = exp(a) / exp(c). Which number makes all exponents at most 0?",
        "Subtract the largest score of each row: `scores - scores.max(dim=-1, keepdim=True).values`.",
    ),
)


@ex.check("three scores")
def _(answer, rng):
    expect(answer(torch.tensor([1.0, 2.0, 3.0])), torch.tensor([0.090031, 0.244728, 0.665241]), "softmax([1., 2., 3.])")


@ex.check("each row of a matrix on its own")
def _(answer, rng):
    scores = torch.randn(5, 7, generator=rng)
    expect(answer(scores), torch.softmax(scores, dim=-1), "softmax of a (5, 7) matrix")


@ex.check("extra leading dimensions, and a single score")
def _(answer, rng):
    scores = torch.randn(2, 3, 4, generator=rng)
    expect(answer(scores), torch.softmax(scores, dim=-1), "softmax of a (2, 3, 4) tensor")
    expect(answer(torch.tensor([[-4.0]])), torch.ones(1, 1), "softmax([[-4.]])")


@ex.check("large scores, of both signs")
def _(answer, rng):
    scores = torch.tensor([[1000.0, 1001.0], [-1001.0, -1000.0], [-500.0, 500.0]])
    expect(answer(scores), torch.softmax(scores, dim=-1), "softmax of scores near 1000")


@ex.check("a score of -inf gets no weight")
def _(answer, rng):
    scores = torch.tensor([0.5, float("-inf"), 1.5])
    expect(answer(scores), torch.softmax(scores, dim=-1), "softmax([0.5, -inf, 1.5])")


@ex.check("float64 and float16 keep their dtype")
def _(answer, rng):
    for dtype in (torch.float64, torch.float16):
        scores = torch.randn(3, 5, generator=rng, dtype=torch.float64).to(dtype) * 4
        expect(answer(scores), torch.softmax(scores, dim=-1), f"softmax of a (3, 5) matrix in {dtype}")


@ex.mistake("exp without subtracting the largest score", hint="exp(1000) is inf in every dtype, and inf / inf is nan.")
def _(scores):
    return torch.exp(scores) / torch.exp(scores).sum(dim=-1, keepdim=True)


@ex.mistake(
    "one largest score for the whole tensor",
    hint="Each row needs its own maximum, or all its powers can become 0: `max(dim=-1, keepdim=True).values`.",
)
def _(scores):
    powers = torch.exp(scores - scores.max())
    return powers / powers.sum(dim=-1, keepdim=True)


@ex.mistake(
    "the sum over all scores instead of over each row",
    hint="`x.sum()` adds the whole tensor. Say which dimension to add: `x.sum(dim=-1, keepdim=True)`.",
)
def _(scores):
    powers = torch.exp(scores - scores.max())
    return powers / powers.sum()


@ex.mistake(
    "the sum over the first dimension",
    hint="`dim=0` goes down the columns. The last dimension, `dim=-1`, goes along a row.",
)
def _(scores):
    return torch.softmax(scores, dim=0)


@ex.mistake(
    "divided by the largest value, not by the sum",
    hint="The weights must sum to 1: divide by the sum of the exponentials.",
)
def _(scores):
    return torch.exp(scores - scores.max(dim=-1, keepdim=True).values)


@ex.mistake(
    "no exponential", hint="Raise e to the power of each score first: that is what makes every weight positive."
)
def _(scores):
    return scores / scores.sum(dim=-1, keepdim=True)
