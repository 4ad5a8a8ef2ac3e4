"""Lesson 00: softmax."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.lessons.start_here import softmax


@settings(max_examples=50, deadline=None)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]),
    size=st.sampled_from([0.0, 1.0, 100.0, 30_000.0]),
    seed=st.integers(0, 2**16),
)
def test_softmax_is_pytorchs(shape: list[int], dtype: torch.dtype, size: float, seed: int):
    scores = (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * size).clamp(-6e4, 6e4).to(dtype)
    exact = torch.softmax(scores.double(), dim=-1)
    ours, theirs = softmax(scores), torch.softmax(scores, dim=-1)
    assert ours.shape == scores.shape and ours.dtype == dtype
    allowed = 2 * (theirs.double() - exact).abs().max() + 2 * torch.finfo(dtype).eps
    assert (ours.double() - exact).abs().max() <= allowed


def test_gradients():
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(softmax, scores)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_minus_infinity_gets_exactly_no_weight(dtype: torch.dtype):
    weights = softmax(torch.tensor([0.5, float("-inf"), 1.5], dtype=dtype))
    assert weights[1] == 0 and abs(weights.sum().item() - 1) < 1e-3
