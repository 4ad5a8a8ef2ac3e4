"""Lesson 07's measurement."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from course_utils.lessons import sequence_models as course

_CORES = {
    "RNN": course.rnn_core,
    "CNN": course.cnn_core,
    "dilated CNN": course.dilated_cnn_core,
    "attention": course.attention_core,
}
_DISTANCES = (1, 2, 4, 8, 16, 32, 64, 128)
_COPIED = (4, 16, 64, 128)
_SEEDS = range(3)


def recall() -> list[dict[str, Any]]:
    """Lesson 07: recall and copying against distance, three seeds; the rivals also trained longer. 15 minutes."""
    rows = []
    for seed in _SEEDS:
        for name, core in _CORES.items():
            rows.append(_recall(name, core, seed))
        rows.append(_recall("RNN, gates open", course.rnn_core_with_open_gates, seed))
        rows.append(_recall("dilated CNN, distance 64 only", course.dilated_cnn_core, seed, distance=64))
        rows.append(_recall("attention, distance 64 only", course.attention_core, seed, distance=64))
        longer = {"distance": 64, "steps": 1000, "learning_rate": 5e-3}
        rows.append(_recall("attention, distance 64 only, longer", course.attention_core, seed, **longer))
        for name in ("RNN", "CNN", "dilated CNN"):
            for rate in (5e-3, 1.5e-2):
                rows.append(_recall(f"{name}, longer", _CORES[name], seed, steps=800, learning_rate=rate))
        rows += [_copy(name, core, seed) for name, core in _CORES.items()]
    return rows


def _recall(name: str, core: Callable[[], nn.Module], seed: int, **settings: Any) -> dict[str, Any]:
    model = course.trained_model(core, seed, **settings)
    distances = [settings["distance"]] if "distance" in settings else _DISTANCES
    return _row("recall", name, seed, core, {d: course.recall_accuracy(model, d) for d in distances}, settings)


def _copy(name: str, core: Callable[[], nn.Module], seed: int) -> dict[str, Any]:
    """One model for each distance: copying knows no others."""
    settings = {"steps": 300, "learning_rate": 5e-3}
    train = partial(course.trained_model, core, seed, model=course.CopyModel, **settings)
    return _row("copy", name, seed, core, {d: course.recall_accuracy(train(d), d) for d in _COPIED}, settings)


def _row(
    task: str,
    name: str,
    seed: int,
    core: Callable[[], nn.Module],
    accuracy: dict[int, float],
    settings: dict[str, Any],
) -> dict[str, Any]:
    row = {
        "task": task,
        "model": name,
        "seed": seed,
        "parameters": sum(p.numel() for p in core().parameters()),
        "steps": settings.get("steps", 200),
        "learning_rate": settings.get("learning_rate", 1.5e-2),
        "accuracy": {str(distance): round(share, 3) for distance, share in accuracy.items()},
    }
    print(row, flush=True)
    return row
