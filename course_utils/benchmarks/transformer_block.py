"""Lesson 08's measurements."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.benchmarks.timing import ratios
from course_utils.lessons.masking import causal_mask
from course_utils.lessons.transformer_block import (
    TransformerBlock,
    copy_block_weights,
    post_norm_block,
    pre_norm_block,
    train_deep,
    without_norms,
    without_residuals,
)

_SIZES = ((8, 64, 512), (4, 256, 256), (1, 1024, 256))  # batch, tokens, d_model
_ORDERS = (post_norm_block, pre_norm_block)
_WAYS = (post_norm_block, pre_norm_block, without_norms, without_residuals)
_STARTS = {"small": 1.0, "larger": 3**0.5}
_RATES = (1e-3, 2e-3, 5e-3, 1e-2)
_DEPTHS = ((1, 150), (8, 150), (8, 600), (32, 600))  # blocks, and steps of training


def layers() -> list[dict[str, Any]]:
    """Lesson 08: the time of the Transformer block, forward and backward, as a part of PyTorch's. Some minutes."""
    rows = []
    for (batch, n_tokens, d_model), order, is_causal in itertools.product(_SIZES, _ORDERS, (False, True)):
        row = {"batch": batch, "tokens": n_tokens, "d_model": d_model, "heads": 8, "order": order.__name__}
        row |= {"is_causal": is_causal} | ratios(_blocks(batch, n_tokens, d_model, order, is_causal), to="pytorch")
        rows.append(row)
        print(row, flush=True)
    return rows


def _blocks(
    batch: int, n_tokens: int, d_model: int, order: Callable, is_causal: bool
) -> dict[str, Callable[[], Tensor]]:
    """Our block and PyTorch's, with the same weights."""
    pre = order is pre_norm_block
    theirs = nn.TransformerEncoderLayer(d_model, 8, 4 * d_model, dropout=0.0, batch_first=True, norm_first=pre)
    ours = TransformerBlock(d_model, 8, 4 * d_model, order=order)
    copy_block_weights(theirs, ours)
    x = torch.randn(batch, n_tokens, d_model, requires_grad=True)
    hidden = ~causal_mask(n_tokens, n_tokens) if is_causal else None  # PyTorch's module: True = hidden
    return {
        "pytorch": functools.partial(theirs, x, src_mask=hidden, is_causal=is_causal),
        "ours": functools.partial(ours, x, is_causal=is_causal),
    }


def depth() -> list[dict[str, Any]]:
    """Lesson 08: which stacks of blocks learn a small task, from two starts, each at its best rate. Half an hour."""
    rows = []
    for (n_blocks, steps), (start, factor), order in itertools.product(_DEPTHS, _STARTS.items(), _WAYS):
        run = functools.partial(train_deep, n_blocks, order, factor, steps=steps)
        by_rate = {rate: run(rate=rate, seed=0) for rate in _RATES}
        best = max(_RATES, key=lambda rate: by_rate[rate])
        accuracies = [by_rate[best], *(run(rate=best, seed=seed) for seed in (1, 2))]
        row = {"blocks": n_blocks, "steps": steps, "start": start, "order": order.__name__, "rate": best}
        row |= {"accuracies": [round(accuracy, 3) for accuracy in accuracies]}
        rows.append(row | {"by_rate": {f"{rate:g}": round(accuracy, 3) for rate, accuracy in by_rate.items()}})
        print(rows[-1], flush=True)
    return rows
