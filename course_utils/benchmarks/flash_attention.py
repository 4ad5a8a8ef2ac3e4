"""Lesson 14's measurement."""

from typing import Any

from course_utils.lessons.flash_attention import measured_use

_N_TOKENS = [256, 512, 1024, 2048, 4096, 8192, 16384]
_WAYS = {"plain": 8192, "tiled": 16384, "PyTorch's fused": 16384}  # the most tokens: plain needs 3 GiB beyond
_RUNS = 3


def flash() -> list[dict[str, Any]]:
    """Lesson 14: processor seconds and memory of attention, plain, tiled and PyTorch's. 3 minutes."""
    rows = []
    for way, most in _WAYS.items():
        for n_tokens in (n for n in _N_TOKENS if n <= most):
            # Each in a process of its own; of several runs the one that was disturbed least
            uses = [measured_use(way, [n_tokens], d_k=64, first=32)[0] for _ in range(_RUNS if n_tokens < most else 1)]
            best = min(uses, key=lambda use: use.seconds)
            row = {"way": way, "tokens": n_tokens, "d_k": 64, "heads": 1}
            rows.append(row | {"seconds": round(best.seconds, 4), "bytes": best.n_bytes})
            print(rows[-1], flush=True)
    return rows
