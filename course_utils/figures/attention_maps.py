"""Attention maps: source words along the top, output words down the side."""

from collections.abc import Collection, Sequence

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_utils.figures.style import COLOURS, new_figure

Link = tuple[int, int]  # (source position, target position)
_WRITTEN = 90  # maps with at most so many cells show their numbers


def attention_map(
    weights: Float[Tensor, "target source"],
    source: Sequence[str],
    target: Sequence[str],
    links: Collection[Link] = (),
) -> Figure:
    """One map; `links`, where they are known, are drawn as frames around the cells that belong together."""
    height = 1.1 + 0.34 * len(target)
    figure, axes = new_figure(height)
    draw_attention_map(axes, weights, source, target, links)
    return figure


def attention_maps(maps: Sequence[tuple[str, Float[Tensor, "target source"], Sequence[str], Sequence[str]]]) -> Figure:
    """Several maps side by side: (title, weights, source words, target words)."""
    figure, panels = new_figure(3.4, columns=len(maps))
    for axes, (title, weights, source, target) in zip(panels, maps, strict=True):
        draw_attention_map(axes, weights, source, target)
        axes.set_title(title, fontsize=10)
    return figure


def draw_attention_map(
    axes: Axes,
    weights: Float[Tensor, "target source"],
    source: Sequence[str],
    target: Sequence[str],
    links: Collection[Link] = (),
) -> None:
    """Draw a map into given axes. Raises ValueError where the words do not fit the weights."""
    if tuple(weights.shape) != (len(target), len(source)):
        raise ValueError(f"weights must be (target, source) = {(len(target), len(source))}, got {tuple(weights.shape)}")
    axes.imshow(weights.detach().cpu(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(source)), source, rotation=45 if max(map(len, source)) > 4 else 0, ha="left")
    axes.set_yticks(range(len(target)), target)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(False)
    if weights.numel() <= _WRITTEN:
        _write_weights(axes, weights)
    for i, j in links:
        axes.add_patch(Rectangle((i - 0.47, j - 0.47), 0.94, 0.94, fill=False, edgecolor=COLOURS["red"], linewidth=1.8))


def _write_weights(axes: Axes, weights: Float[Tensor, "target source"]) -> None:
    for j, row in enumerate(weights.tolist()):
        for i, weight in enumerate(row):
            if weight >= 0.05:
                colour = "white" if weight > 0.6 else "black"
                axes.text(i, j, f"{weight:.2f}".lstrip("0"), ha="center", va="center", fontsize=8, color=colour)
