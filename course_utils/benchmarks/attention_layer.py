"""Lesson 03's measurement."""

from typing import Any

import torch
from torch import nn

from course_utils.lessons.attention_layer import (
    LEARNING_RATE,
    STEPS,
    WARMUP,
    CardReader,
    card_loss,
    draw_cards,
    share_right,
)
from course_utils.training import one_thread

# 8 is √64: a scale of 1/8 is shared by W_Q and W_K, so each gets 1/√8.
ROOT = 8**0.5


def scale() -> list[dict[str, Any]]:
    """Lesson 03: readers of cards with and without the scale, other widths, steps and learning rates. A minute."""
    settings: list[dict[str, Any]] = [
        *({"reader": "with the scale", "d_k": d_k} for d_k in (4, 16, 64)),
        *({"reader": "without", "d_k": d_k} for d_k in (4, 16, 64)),
        {"reader": "without, three times the steps", "d_k": 64, "steps": 3 * STEPS},
        {"reader": "without, all steps smaller", "d_k": 64, "all_slower": ROOT},
        {"reader": "without, 3 times as many smaller steps", "d_k": 64, "all_slower": ROOT, "steps": 3 * STEPS},
        {"reader": "without, W_Q and W_K start smaller", "d_k": 64, "start": 1 / ROOT},
        {"reader": "without, W_Q and W_K move slower", "d_k": 64, "slower": ROOT},
        {"reader": "without, W_Q and W_K both", "d_k": 64, "start": 1 / ROOT, "slower": ROOT},
    ]
    rows = []
    for setting in settings:
        name, d_k, options = setting["reader"], setting["d_k"], {k: v for k, v in setting.items() if k != "reader"}
        factor = 1.0 if name == "with the scale" else d_k**0.5
        right = [round(train_with_two_rates(factor=factor, seed=seed, **options), 3) for seed in range(3)]
        rows.append({"reader": name, "d_k": d_k, "steps": options.get("steps", STEPS), "right": right})
        print(rows[-1], flush=True)
    return rows


@one_thread()
def train_with_two_rates(
    *,
    d_k: int,
    factor: float,
    seed: int,
    steps: int = STEPS,
    start: float = 1,
    slower: float = 1,
    all_slower: float = 1,
) -> float:
    """The share of right answers of a reader that is trained as in the lesson, but for three things.

    The initial numbers of W_Q and W_K are multiplied by `start`, their learning rate is divided by `slower`, and all
    learning rates by `all_slower`.
    """
    torch.manual_seed(seed)
    model = CardReader(d_k, 16, factor=factor)
    ours = [model.w_q, model.w_k]
    with torch.no_grad():
        for matrix in ours:
            matrix *= start
    others = [p for p in model.parameters() if all(p is not matrix for matrix in ours)]
    rate = LEARNING_RATE / all_slower
    optimizer = torch.optim.Adam([{"params": ours}, {"params": others}], lr=rate, betas=(0.9, 0.98), fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, [rate / slower, rate], total_steps=steps + 1, pct_start=WARMUP, cycle_momentum=False
    )
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        loss = card_loss(model, draw_cards(generator))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return share_right(model, draw_cards(torch.Generator().manual_seed(10**6), batch=64))
