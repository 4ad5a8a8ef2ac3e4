"""Lesson 06's measurement."""

import functools
import statistics
import time
from typing import Any

import torch

from course_utils.lessons.masking import causal_mask
from course_utils.lessons.multi_head import MultiHeadAttention, copy_weights


def layers() -> list[dict[str, Any]]:
    """Lesson 06: multi-head attention, forward and backward, against PyTorch's module. About a minute."""
    rows = []
    for batch, n_tokens, d_model in ((4, 256, 256), (8, 64, 512), (1, 1024, 256)):
        theirs = torch.nn.MultiheadAttention(d_model, 8, batch_first=True)
        ours = MultiHeadAttention(d_model, 8)
        copy_weights(theirs, ours)
        x = torch.randn(batch, n_tokens, d_model, requires_grad=True)
        for is_causal in (False, True):
            hidden = ~causal_mask(n_tokens, n_tokens) if is_causal else None  # PyTorch's module: True = hidden
            call = functools.partial(theirs, x, x, x, attn_mask=hidden)
            runs = {
                "ours": functools.partial(ours, x, is_causal=is_causal),
                "pytorch": call,
                "pytorch_fused": functools.partial(call, need_weights=False, is_causal=is_causal),
            }
            seconds: dict[str, list[float]] = {name: [] for name in runs}
            for _ in range(43):  # turn by turn, so that a slow moment of the machine slows all three
                for name, run in runs.items():
                    began = time.perf_counter()
                    outputs = run()
                    (outputs if name == "ours" else outputs[0]).sum().backward()
                    seconds[name].append(time.perf_counter() - began)
            kept = {name: times[3:] for name, times in seconds.items()}  # the first ones warm up
            row = {"batch": batch, "tokens": n_tokens, "d_model": d_model, "heads": 8, "is_causal": is_causal}
            row |= {f"{name}_ms": round(1000 * statistics.median(times), 2) for name, times in kept.items()}
            for name in ("pytorch", "pytorch_fused"):
                ratios = [a / b for a, b in zip(kept["ours"], kept[name], strict=True)]
                row[f"ratio_to_{name}"] = round(statistics.median(ratios), 2)
            rows.append(row)
            print(row, flush=True)
    return rows
