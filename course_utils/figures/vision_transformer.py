"""The pictures of lesson 11."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from torch import Tensor

from course_utils.figures.diagrams import arrow, box, canvas
from course_utils.figures.style import COLOURS, new_figure

# The same model keeps its colour and its marker in all pictures of the lesson.
STYLES = {
    "ViT": ("blue", "o"),
    "ViT, mean pooling": ("sky", "D"),
    "ViT, no positions": ("red", "x"),
    "CNN": ("orange", "s"),
    "small CNN": ("orange", "^"),
    "nearest neighbour": ("grey", "v"),
    "logistic regression": ("grey", "P"),
}
Picture = Float[Tensor, "height width"]


def overview(image: Picture, patches: Float[Tensor, "patches numbers"], patch_size: int) -> Figure:
    """The way of one image, from the left to the right: patches, tokens, blocks, one answer."""
    figure, axes = new_figure(3.1)
    canvas(axes, 20, 9.4)
    _paper(axes, image, (0.2, 3.2, 3.2, 6.2))
    _grid(axes, (0.2, 3.2, 3.2, 6.2), len(image) // patch_size)
    axes.text(1.7, 2.75, "image", ha="center", va="top", fontsize=9)
    shown, grey = (0, 1, 2, 15), COLOURS["grey"]
    heights = (7.4, 5.9, 4.4, 1.9)
    box(axes, 8.7, 8.9, 2.4, 0.75, "class token", COLOURS["pink"])
    arrow(axes, (9.9, 8.9), (11.05, 8.9), grey)
    for number, y in zip(shown, heights, strict=True):
        _paper(axes, patches[number].reshape(patch_size, patch_size), (4.6, y - 0.5, 5.6, y + 0.5))
        axes.text(4.4, y, f"{number}", ha="right", va="center", fontsize=8.5, color=grey)
        box(axes, 8.2, y, 2.6, 0.75, "projection", COLOURS["blue"])
        arrow(axes, (5.7, y), (6.9, y), grey)
        arrow(axes, (9.5, y), (11.05, y), grey)
    arrow(axes, (3.3, 4.7), (4.15, 4.7), grey)
    for x in (5.1, 8.2, 11.75):
        axes.text(x, 3.15, "⋮", ha="center", va="center", fontsize=13, color=grey)
    for y in (8.9, *heights):
        box(axes, 11.75, y, 1.4, 0.75, "+ pos.", COLOURS["green"], size=8.5)
        arrow(axes, (12.45, y), (13.5, y), grey)
    axes.text(5.1, 0.75, "16 patches", ha="center", fontsize=9)
    axes.text(11.75, 0.75, "17 tokens", ha="center", fontsize=9)
    box(axes, 14.6, 5.4, 2.2, 7.8, "blocks of\nlesson 08", COLOURS["orange"])
    arrow(axes, (15.7, 8.9), (16.5, 8.9), grey)
    box(axes, 17.4, 8.9, 1.7, 0.75, "head", COLOURS["blue"])
    arrow(axes, (17.4, 8.5), (17.4, 7.3), grey)
    axes.text(17.4, 6.8, "10 logits", ha="center", va="center", fontsize=9)
    axes.text(14.6, 0.75, "17 tokens come out;\nthe head reads the first", ha="left", va="center", fontsize=9)
    return figure


def _paper(axes: Axes, image: Picture, place: tuple[float, float, float, float]) -> None:
    """Dark ink on white paper, in the rectangle (left, bottom, right, top)."""
    left, bottom, right, top = place
    axes.imshow(image, cmap="Greys", vmin=0, vmax=1, extent=(left, right, bottom, top), zorder=2)
    x, y = [left, right, right, left, left], [bottom, bottom, top, top, bottom]
    axes.plot(x, y, color=COLOURS["grey"], linewidth=0.8, zorder=3)


def _grid(axes: Axes, place: tuple[float, float, float, float], n: int) -> None:
    left, bottom, right, top = place
    for i in range(1, n):
        axes.plot([left + (right - left) * i / n] * 2, [bottom, top], color=COLOURS["red"], linewidth=1, zorder=3)
        axes.plot([left, right], [bottom + (top - bottom) * i / n] * 2, color=COLOURS["red"], linewidth=1, zorder=3)


def patches_in_order(image: Picture, patches: Float[Tensor, "patches numbers"], patch_size: int) -> Figure:
    """The image with its grid, and the patches one after the other."""
    figure, axes = new_figure(2.3)
    canvas(axes, 22, 7)
    place, n = (0.3, 0.5, 6.3, 6.5), len(image) // patch_size
    _paper(axes, image, place)
    _grid(axes, place, n)
    side = 6 / n
    for i in range(len(patches)):
        x, y = 0.3 + side * (i % n), 6.5 - side * (i // n)
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        axes.text(x + 0.14, y - 0.14, i, ha="left", va="top", fontsize=8, color=COLOURS["red"], zorder=4, bbox=paper)
        column, row = i % 8, i // 8
        left, bottom = 8.2 + 1.72 * column, 4.0 - 3.2 * row
        _paper(axes, patches[i].reshape(patch_size, patch_size), (left, bottom, left + 1.3, bottom + 1.3))
        axes.text(left + 0.65, bottom + 1.5, i, ha="center", va="bottom", fontsize=8, color=COLOURS["red"])
    arrow(axes, (6.6, 3.5), (7.8, 3.5))
    return figure


def pictures(rows: Sequence[tuple[str, Sequence[tuple[str, Picture]]]], height: float) -> Figure:
    """Rows of small pictures: (what the row shows, [(title, picture), ...])."""
    figure, grid = new_figure(height, columns=len(rows[0][1]), rows=len(rows), squeeze=False)
    for line, (name, row) in zip(grid, rows, strict=True):
        for axes, (title, picture) in zip(line, row, strict=True):
            axes.imshow(picture, cmap="Greys", vmin=0, vmax=1)
            _bare(axes)
            axes.set_title(title, fontsize=9)
        line[0].set_ylabel(name, fontsize=9)
    return figure


def _bare(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set(visible=True, color=COLOURS["grey"], linewidth=0.8)


def reach(patch: Float[Tensor, "rows columns"], pixel: Picture, place: tuple[int, int], at: tuple[int, int]) -> Figure:
    """Left: how much one patch's output changes with each patch. Right: the same for one pixel of a convolution.

    `place` is the patch, and `at` the pixel, whose output is looked at: a red frame.
    """
    figure, panels = new_figure(2.9, columns=2)
    titles = "first block of the ViT:\none patch, by patches", "first convolution of the CNN:\none pixel, by pixels"
    for axes, values, title, (row, column) in zip(panels, (patch, pixel), titles, (place, at), strict=True):
        axes.imshow(values, cmap="Blues", vmin=0, vmax=1)
        for i, line in enumerate(values.tolist()):
            for j, value in enumerate(line):
                rounded = "<.01" if value < 0.005 else f"{value:.2f}".lstrip("0")
                colour = "white" if value > 0.6 else "black"
                text = rounded if value else "0"
                axes.text(j, i, text, ha="center", va="center", fontsize=8 if len(values) < 6 else 6.5, color=colour)
        _bare(axes)
        frame = [column - 0.5, column + 0.5, column + 0.5, column - 0.5, column - 0.5]
        axes.plot(frame, [row - 0.5, row - 0.5, row + 0.5, row + 0.5, row - 0.5], color=COLOURS["red"], linewidth=2)
        axes.set_title(title, fontsize=9.5)
    return figure


def similarities(maps: Sequence[tuple[str, Float[Tensor, "rows columns rows columns"]]]) -> Figure:
    """For each place on the grid, how similar its position is to all others; a white dot marks the place itself."""
    rows, columns = math.ceil(len(maps) / 2), min(2, len(maps))
    apart = {"squeeze": False, "gridspec_kw": {"hspace": 0.12}}
    figure, panels = new_figure(0.9 + 2.7 * rows, columns=columns, rows=rows, **apart)
    image = None
    for axes, (title, values) in zip(panels.flat, maps, strict=True):
        n = len(values)
        tiled = torch.full((n * (n + 1) - 1,) * 2, torch.nan)
        for i in range(n):
            for j in range(n):
                tiled[(n + 1) * i : (n + 1) * i + n, (n + 1) * j : (n + 1) * j + n] = values[i, j]
                axes.plot((n + 1) * j + j, (n + 1) * i + i, ".", color="white", markersize=6)
        image = axes.imshow(tiled, cmap="PuOr_r", vmin=-1, vmax=1)
        axes.axis("off")
        axes.set_title(title, fontsize=9.5)
    if image is None:
        raise ValueError("there is no map to draw")
    bar = figure.colorbar(image, ax=list(panels.flat), location="bottom", shrink=0.5, aspect=30, ticks=[-1, 0, 1])
    bar.set_label("cosine similarity", fontsize=9)
    return figure


def rollouts(
    images: Sequence[Picture], maps: Sequence[Float[Tensor, "rows columns"]], titles: Sequence[str], largest: float
) -> Figure:
    """Digits, and below each how much of every patch is in its class token, in percent."""
    figure, grid = new_figure(2.9, columns=len(images), rows=2, squeeze=False)
    for top, below, image, values, title in zip(*grid, images, maps, titles, strict=True):
        top.imshow(image, cmap="Greys", vmin=0, vmax=1)
        top.set_title(title, fontsize=9)
        below.imshow(values, cmap="Blues", vmin=0, vmax=largest)
        for i, line in enumerate(values.tolist()):
            for j, value in enumerate(line):
                colour = "white" if value > 0.6 * largest else "black"
                below.text(j, i, f"{100 * value:.0f}", ha="center", va="center", fontsize=7.5, color=colour)
        for axes in (top, below):
            _bare(axes)
    grid[0][0].set_ylabel("image", fontsize=9)
    grid[1][0].set_ylabel("rollout (%)", fontsize=9)
    return figure


def accuracies(right: Mapping[str, Sequence[float]], lowest: float) -> Figure:
    """A mark for each seed; each model has a line of its own. The axis begins at `lowest`."""
    figure, axes = new_figure(0.9 + 0.34 * len(right))
    for y, (name, values) in enumerate(right.items()):
        colour, marker = STYLES[name]
        axes.plot(values, [y] * len(values), marker, color=COLOURS[colour], markersize=7, alpha=0.8)
        axes.annotate(f"{sum(values) / len(values):.1%}", (max(values), y), xytext=(9, -4), textcoords="offset points")
    axes.set_yticks(range(len(right)), list(right))
    width = 1 - lowest
    axes.set(xlim=(lowest, 1 + 0.12 * width), ylim=(len(right) - 0.5, -0.5), xlabel="right on the held-out third")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.0%}"))
    axes.set_xticks([lowest + i * width / 5 for i in range(6)])
    return figure


def data_curves(rows: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> Figure:
    """Accuracy against the number of training images: a line through the means, a mark for each seed."""
    figure, panels = new_figure(3.3, columns=len(titles), sharey=True)
    for axes, (data, title) in zip(panels, titles.items(), strict=True):
        for name in ("ViT", "CNN"):
            points = [(row["images"], row["right"]) for row in rows if (row["data"], row["model"]) == (data, name)]
            sizes = sorted({n for n, _ in points})
            means = [sum(a for n, a in points if n == size) / sum(n == size for n, _ in points) for size in sizes]
            colour, marker = STYLES[name]
            axes.plot(sizes, means, color=COLOURS[colour], linewidth=2, label=name)
            axes.plot(*zip(*points, strict=True), marker, color=COLOURS[colour], markersize=4.5, alpha=0.7)
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8.5)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()
        axes.set(xlabel="training images (logarithmic)", ylim=(0.7, 1.01))
        axes.legend(loc="lower right")
        axes.set_title(title, fontsize=10)
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.0%}"))
    panels[0].set_ylabel("right on held-out images")
    return figure
