"""Attention maps: source words along the top, output words down the side."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_utils.corpora.pairs import Pair
from course_utils.figures.style import COLOURS, new_figure

_WRITTEN = 100  # maps with at most so many cells show their numbers
_SIDES = ("read", "written")  # what stands along the top, and what down the side


def attention_map(weights: Float[Tensor, "target source"], pair: Pair, sides: tuple[str, str] = _SIDES) -> Figure:
    """One map. The pair's sure links are drawn as red frames, links that are only possible as dotted ones.

    `sides` says what the columns and the rows are.
    """
    figure, axes = new_figure(1.1 + 0.34 * len(pair.target))
    _draw_attention_map(axes, weights, pair, sides)
    return figure


def attention_maps(
    maps: Sequence[tuple[str, Float[Tensor, "target source"], Pair]], sides: tuple[str, str] = _SIDES
) -> Figure:
    """Several maps side by side: (title, weights, pair)."""
    rows = max(len(pair.target) for _, _, pair in maps)
    figure, panels = new_figure(1.5 + 0.3 * rows, columns=len(maps))
    for axes, (title, weights, pair) in zip(panels, maps, strict=True):
        _draw_attention_map(axes, weights, pair, sides)
        axes.set_title(title, fontsize=10)
    return figure


def _draw_attention_map(
    axes: Axes, weights: Float[Tensor, "target source"], pair: Pair, sides: tuple[str, str]
) -> None:
    """Draw a map into given axes. Raises ValueError where the words do not fit the weights."""
    shape = (len(pair.target), len(pair.source))
    if tuple(weights.shape) != shape:
        raise ValueError(f"weights must be (target, source) = {shape}, got {tuple(weights.shape)}")
    axes.imshow(weights.detach().cpu(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    long_words = max(map(len, pair.source)) > 4
    turned: dict[str, Any] = {"rotation": 45, "ha": "left", "rotation_mode": "anchor"} if long_words else {}
    axes.set_xticks(range(len(pair.source)), pair.source, **turned)
    axes.set_yticks(range(len(pair.target)), pair.target)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel(f"{sides[0]} →", loc="left", fontsize=8.5, color=COLOURS["grey"])
    axes.set_ylabel(f"← {sides[1]}", loc="top", fontsize=8.5, color=COLOURS["grey"])
    axes.tick_params(length=0)
    axes.grid(False)
    if weights.numel() <= _WRITTEN:
        _write_weights(axes, weights)
    for i, j in pair.possible:
        line = "-" if (i, j) in pair.sure else ":"
        dark = line == ":" and float(weights[j, i]) > 0.6  # red dots cannot be seen there
        frame = Rectangle((i - 0.46, j - 0.46), 0.92, 0.92, fill=False, linestyle=line)
        frame.set_edgecolor("yellow" if dark else COLOURS["red"])
        frame.set_linewidth(1.8)
        axes.add_patch(frame)


def _write_weights(axes: Axes, weights: Float[Tensor, "target source"]) -> None:
    for j, row in enumerate(weights.tolist()):
        for i, weight in enumerate(row):
            if weight >= 0.05:
                colour = "white" if weight > 0.6 else "black"
                axes.text(i, j, f"{weight:.2f}".lstrip("0"), ha="center", va="center", fontsize=8, color=colour)
