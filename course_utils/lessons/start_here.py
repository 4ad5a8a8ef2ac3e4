"""Lesson 00: one small function, to learn how lessons work."""

import torch
from jaxtyping import Float
from torch import Tensor


def softmax(scores: Float[Tensor, "... n"]) -> Float[Tensor, "... n"]:
    """Turn scores into weights: they are positive, and their sum is 1.

    weights[i] = exp(scores[i]) / sum over j of exp(scores[j])

    scores: any number of leading dimensions, then n: the sum goes along the last one.
    The weights have the same shape and dtype. The weights must be right for large
    scores too: [1000., 1001.] gives [0.2689, 0.7311], although exp(1000) is too large
    for any dtype. A score of -inf gets a weight of exactly 0.
    """
    largest = scores.max(dim=-1, keepdim=True).values
    powers = torch.exp(scores - largest)
    return powers / powers.sum(dim=-1, keepdim=True)
