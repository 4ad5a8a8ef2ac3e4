"""Lesson 13's measurement."""

import itertools
from collections.abc import Callable
from typing import Any

from torch import nn

from course_utils.lessons import fast_decoding as course
from course_utils.lessons.multi_head import MultiHeadAttention, attend
from course_utils.lessons.sequence_models import attention_core, trained_model

_KINDS = {"softmax": attend, "linear": course.attend_linear}
_HEADS = (1, 4, 16)
_STEPS, _RATE = 800, 5e-3


def linear_recall() -> list[dict[str, Any]]:
    """Lesson 13: recall against the pairs read, 800 steps, with 1, 4 and 16 heads, three seeds. 10 minutes."""
    return [_row(kind, n_heads, seed) for seed, kind, n_heads in itertools.product(range(3), _KINDS, _HEADS)]


def _row(kind: str, n_heads: int, seed: int) -> dict[str, Any]:
    """More heads change no parameter. The state of linear attention, d_k x d_k numbers in each head, gets smaller."""
    model = trained_model(_core(_KINDS[kind], n_heads), seed, steps=_STEPS, learning_rate=_RATE)
    return {
        "kind": kind,
        "n_heads": n_heads,
        "seed": seed,
        "steps": _STEPS,
        "learning_rate": _RATE,
        "parameters": sum(p.numel() for p in model.parameters()),
        "accuracy": [round(share, 3) for share in course.accuracy_by_pairs(model).tolist()],
    }


def _core(look: Callable, n_heads: int) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        core = course.with_attend(attention_core(), lambda: look)
        for module in core.modules():
            if isinstance(module, MultiHeadAttention):
                module.n_heads = n_heads
        return core

    return make
