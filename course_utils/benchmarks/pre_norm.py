"""Lesson 12's measurements."""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.benchmarks.timing import ratios
from course_utils.corpora import english
from course_utils.lessons.language_model import Tokenizer
from course_utils.lessons.pre_norm import (
    RATE,
    STEPS,
    WARMUP,
    MixtureOfExperts,
    RMSNorm,
    SwiGLU,
    balanced_loss,
    gelu_mlp,
    held_out_loss,
    post_stack,
    pre_stack,
    small_model,
    train_small,
    train_stack,
)
from course_utils.lessons.transformer_block import LayerNorm

_SIZES = ((8, 64, 512), (4, 256, 256), (1, 1024, 1024))  # batch, tokens, d_model
_RATES = (1e-3, 2e-3, 5e-3, 1e-2)
_STACKS = {"Post-LN": post_stack, "Pre-LN": pre_stack}
_NO_CLIP = 1e9
_VARIANTS: dict[str, tuple[Callable, Callable, int]] = {  # norm, MLP, d_hidden
    "LayerNorm, GELU": (LayerNorm, gelu_mlp, 256),
    "RMSNorm, GELU": (RMSNorm, gelu_mlp, 256),
    "LayerNorm, SwiGLU": (LayerNorm, SwiGLU, 171),
    "LayerNorm, 2 of 8 experts": (LayerNorm, MixtureOfExperts, 128),
    "LayerNorm, wide GELU": (LayerNorm, gelu_mlp, 1024),
}


def layers() -> list[dict[str, Any]]:
    """Lesson 12: RMSNorm and SwiGLU, forward and backward, as a part of the time of PyTorch's. A minute."""
    rows = []
    for batch, n_tokens, d_model in _SIZES:
        sizes = {"batch": batch, "tokens": n_tokens, "d_model": d_model}
        for part, calls in _parts(torch.randn(batch, n_tokens, d_model, requires_grad=True)).items():
            rows.append({"part": part, **sizes, **ratios(calls, to="pytorch")})
            print(rows[-1], flush=True)
    return rows


def _parts(x: Tensor) -> dict[str, dict[str, Callable[[], Tensor]]]:
    """Each part of the lesson beside PyTorch's, with the same weights."""
    d_model = x.shape[-1]
    swiglu = SwiGLU(d_model, 8 * d_model // 3)

    def by_linear() -> Tensor:
        return swiglu.down(F.silu(swiglu.gate(x)) * swiglu.up(x))

    norms = {"pytorch": nn.RMSNorm(d_model, eps=1e-5), "ours": RMSNorm(d_model), "layer_norm": LayerNorm(d_model)}
    return {
        "RMSNorm": {name: functools.partial(norm, x) for name, norm in norms.items()},
        "SwiGLU": {"pytorch": by_linear, "ours": functools.partial(swiglu, x)},
    }


def warm_up() -> list[dict[str, Any]]:
    """Lesson 12: which stacks learn with and without warm-up, at four rates, three seeds. Four minutes."""
    rows = []
    for depth, stack, warmup, rate, steps, clip in _trainings():
        runs = []
        for seed in range(3):
            torch.manual_seed(seed)
            runs.append(train_stack(_STACKS[stack](depth), warmup, seed, rate, steps, clip))
        row = {"blocks": depth, "stack": stack, "warmup": warmup, "rate": rate, "steps": steps, "clip": clip < _NO_CLIP}
        rows.append(row | {"accuracies": [round(run.accuracy, 3) for run in runs]})
        print(rows[-1], flush=True)
    return rows


def _trainings() -> Iterator[tuple[int, str, float, float, int, float]]:
    for (stack, warmup), rate in itertools.product((("Post-LN", 0.0), ("Post-LN", WARMUP), ("Pre-LN", 0.0)), _RATES):
        yield 12, stack, warmup, rate, STEPS, 1.0
    yield 12, "Pre-LN", WARMUP, RATE, STEPS, 1.0
    for depth, rate in itertools.product((2, 6), _RATES):
        yield depth, "Post-LN", 0.0, rate, STEPS, 1.0
    yield 12, "Post-LN", 0.0, RATE, STEPS, _NO_CLIP
    for rate in (1e-3, RATE):
        yield 12, "Post-LN", 0.0, rate, 4 * STEPS, 1.0


def variants() -> list[dict[str, Any]]:
    """Lesson 12: RMSNorm, SwiGLU and experts beside LayerNorm and GELU, on the manual's text. Four minutes."""
    texts, tokenizer = english.splits(), Tokenizer({})
    ids, held_out = tokenizer.encode_all(texts.train), tokenizer.encode_all(texts.held_out)
    rows = []
    for name, (norm, mlp, d_hidden) in _VARIANTS.items():
        losses, parameters = [], 0
        for seed in range(3):
            torch.manual_seed(seed)
            model = small_model(64, d_hidden, 32, norm, mlp)
            parameters = sum(p.numel() for p in model.parameters())
            train_small(model, ids, steps=800, seed=seed, loss=balanced_loss)
            losses.append(round(held_out_loss(model, held_out), 4))
        rows.append({"variant": name, "parameters": parameters, "steps": 800, "held_out": losses})
        print(rows[-1], flush=True)
    return rows
