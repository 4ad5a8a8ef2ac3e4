"""Lesson 06's measurement."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_utils.benchmarks.timing import ratios
from course_utils.lessons.masking import causal_mask
from course_utils.lessons.multi_head import MultiHeadAttention, attend, attend_in_steps, copy_weights

_SIZES = ((8, 64, 512), (4, 256, 256), (1, 1024, 256))  # batch, tokens, d_model


def layers() -> list[dict[str, Any]]:
    """Lesson 06: the time of multi-head attention, forward and backward, as a part of PyTorch's. Some minutes."""
    rows = []
    for batch, n_tokens, d_model in _SIZES:
        for is_causal in (False, True):
            row = {"batch": batch, "tokens": n_tokens, "d_model": d_model, "heads": 8, "is_causal": is_causal}
            row |= ratios(_layers(batch, n_tokens, d_model, is_causal), to="pytorch")
            rows.append(row)
            print(row, flush=True)
    return rows


def _layers(batch: int, n_tokens: int, d_model: int, is_causal: bool) -> dict[str, Callable[[], Tensor]]:
    """Four layers with the same weights, ready to be called: two of ours, and PyTorch's with and without weights."""
    theirs = torch.nn.MultiheadAttention(d_model, 8, batch_first=True)
    x = torch.randn(batch, n_tokens, d_model, requires_grad=True)
    hidden = ~causal_mask(n_tokens, n_tokens) if is_causal else None  # PyTorch's module: True = hidden
    call = functools.partial(theirs, x, x, x, attn_mask=hidden)
    calls = {"pytorch": lambda: call()[0], "pytorch_fused": lambda: call(need_weights=False, is_causal=is_causal)[0]}
    for name, function in (("steps", attend_in_steps), ("fused", attend)):
        ours = MultiHeadAttention(d_model, 8, function)
        copy_weights(theirs, ours)
        calls[name] = functools.partial(ours, x, is_causal=is_causal)
    return calls
