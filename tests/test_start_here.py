"""Lesson 00: softmax. What it shares with other functions is in test_function_promises.py."""

import pytest
import torch

from course_utils.lessons.start_here import softmax


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_minus_infinity_gets_exactly_no_weight(dtype: torch.dtype):
    weights = softmax(torch.tensor([0.5, float("-inf"), 1.5], dtype=dtype))
    assert weights[1] == 0 and abs(weights.sum().item() - 1) < 1e-3
