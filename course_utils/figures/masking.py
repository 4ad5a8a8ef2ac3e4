"""The pictures of lesson 05."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_utils.figures.curves import running_mean
from course_utils.figures.diagrams import arrow, box, canvas
from course_utils.figures.style import COLOURS, new_figure

GIVEN, ANSWER, FUTURE = COLOURS["blue"], COLOURS["green"], COLOURS["red"]
Panel = tuple[str, Bool[Tensor, "rows columns"] | Float[Tensor, "rows columns"], Sequence[str], Sequence[str]]
_LINES = ("orange", "blue", "green")  # the same model keeps its colour in all curves of the lesson
_HIDDEN = "#E4E4E4"
_TINTS = LinearSegmentedColormap.from_list("tints", ["white", GIVEN])


def next_character(text: str) -> Figure:
    """What the model is given (below) and what it must predict (above): the same text, one place further."""
    gap, size = 1.6, 1.0
    text = text.replace(" ", "␣")
    n = len(text) - 1
    figure, axes = new_figure(2.1)
    canvas(axes, gap * n + 3.2, 4.2)
    for y, letters, colour, label in ((3.3, text[1:], ANSWER, "to predict"), (0.9, text[:-1], GIVEN, "given")):
        axes.text(0.1, y, label, color=colour, va="center")
        for i, letter in enumerate(letters):
            box(axes, 3.2 + gap * (i + 0.5), y, size, size, letter, colour, size=11)
    axes.text(0.1, 2.1, "also given", color=FUTURE, va="center")
    for i in range(n):
        x = 3.2 + gap * (i + 0.5)
        arrow(axes, (x, 1.45), (x, 2.75), COLOURS["grey"])
        if i < n - 1:
            arrow(axes, (x + gap - 0.2, 1.45), (x + 0.25, 2.75), FUTURE, linestyle="--")
    return figure


def mask_panels(
    panels: Sequence[Panel], columns: int, *, rows_name: str = "query", columns_name: str = "key"
) -> Figure:
    """Masks side by side: (title, table, names of the rows, names of the columns). Blue is True.

    A table of numbers, which are added to the scores, shows them; -inf is hidden, like False.
    """
    rows = -(-len(panels) // columns)
    tallest = max(table.shape[0] for _, table, _, _ in panels)
    figure, grid = new_figure(rows * (1.1 + 0.27 * tallest), columns=columns, rows=rows, squeeze=False)
    for place, (axes, (title, table, row_names, column_names)) in enumerate(zip(grid.flat, panels, strict=True)):
        _draw_table(axes, table, row_names, column_names)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(columns_name)
        axes.set_ylabel(rows_name if place % columns == 0 else "")
    return figure


def _draw_table(axes: Axes, table: Bool[Tensor, "rows columns"], rows: Sequence[str], columns: Sequence[str]) -> None:
    """Cells with white lines between them; what is hidden is grey and crossed out where there is room."""
    table = table.cpu()
    visible = table if table.dtype == torch.bool else table > -torch.inf
    axes.imshow(visible, cmap=ListedColormap([_HIDDEN, GIVEN]), vmin=0, vmax=1, aspect="auto")
    if table.dtype != torch.bool:
        lowest = table[visible].min().item() - 1
        _draw_numbers(axes, table, lambda value: (value - lowest) / -lowest, "{:g}".format)
    if table.numel() <= 150:
        for i, j in (~visible).nonzero().tolist():
            axes.text(j, i, "×", ha="center", va="center", color=COLOURS["grey"])
    _name_cells(axes, rows, columns)


def _draw_numbers(
    axes: Axes, table: Float[Tensor, "rows columns"], share: Callable[[float], float], form: Callable[[float], str]
) -> None:
    """Every number of the table that is not -inf, in a cell as dark as `share` (0 to 1) says."""
    for i, row in enumerate(table.tolist()):
        for j, value in enumerate(row):
            if value > -math.inf:
                dark = share(value)
                axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=_TINTS(dark), edgecolor="none"))
                text = form(value).replace("-", "−" if float(form(value)) else "")
                colour = "white" if dark > 0.55 else "black"
                axes.text(j, i, text, ha="center", va="center", fontsize=7.5, color=colour)


def _name_cells(axes: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Names beside the cells, and white lines between them."""
    axes.set_xticks(range(len(columns)), columns, fontsize=8.5)
    axes.set_yticks(range(len(rows)), rows, fontsize=8.5)
    axes.set_xticks([j - 0.5 for j in range(1, len(columns))], minor=True)
    axes.set_yticks([i - 0.5 for i in range(1, len(rows))], minor=True)
    axes.grid(False)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)


def masking_steps(
    scores: Float[Tensor, "n n"], mask: Bool[Tensor, "n n"], weights: Float[Tensor, "n n"], names: Sequence[str]
) -> Figure:
    """Scores, the scores that the mask leaves, and the weights that the softmax makes of them, with all numbers.

    A weight that is exactly 0 is written as 0, a small one as .00.
    """
    scores, mask, weights = scores.detach().cpu(), mask.cpu(), weights.detach().cpu()
    low, high = scores.min().item(), scores.max().item()

    def shade(score: float) -> float:
        return 0.7 * (score - low) / (high - low)

    def short(weight: float) -> str:
        return f"{weight:.2f}".lstrip("0") if weight else "0"

    figure, panels = new_figure(0.9 + 0.24 * len(names), columns=3)
    steps = (
        ("scores", scores, shade, "{:.1f}".format),
        ("masked scores", scores.masked_fill(~mask, -torch.inf), shade, "{:.1f}".format),
        ("weights", weights, float, short),
    )
    for axes, (title, table, share, form) in zip(panels, steps, strict=True):
        axes.imshow(table > -torch.inf, cmap=ListedColormap([_HIDDEN, "white"]), vmin=0, vmax=1, aspect="auto")
        _draw_numbers(axes, table, share, form)
        for i, j in (table == -torch.inf).nonzero().tolist():
            axes.text(j, i, "−∞", ha="center", va="center", fontsize=7.5, color=COLOURS["grey"])
        _name_cells(axes, names, names)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("key")
    panels[0].set_ylabel("query")
    return figure


def loss_curve(label: str, losses: Sequence[float], *, chance: float, smooth: int = 20) -> Figure:
    """The training loss of a model, as the mean of the last `smooth` steps."""
    figure, axes = new_figure(2.6)
    steps = range(1, len(losses) + 1)
    axes.plot(steps, running_mean(losses, smooth), color=COLOURS[_LINES[0]], linewidth=2, label=label)
    _level(axes, chance, "all characters equally likely", "--")
    axes.set(xlabel="training step", ylabel="loss (nats per character)", xlim=(0, len(losses)), ylim=(0, None))
    axes.legend(loc="upper right", bbox_to_anchor=(1, 0.88))
    return figure


def honest_curves(curves: Mapping[str, Sequence[Sequence[float]]], *, levels: Mapping[str, float]) -> Figure:
    """The loss of the next character against how many characters the model was given: thin lines are the seeds,
    points their mean. `levels` are losses to compare with, from the highest to the lowest.
    """
    figure, axes = new_figure(3.3)
    for (label, seeds), colour in zip(curves.items(), _LINES, strict=False):
        given = range(1, len(seeds[0]) + 1)
        for losses in seeds:
            axes.plot(given, losses, color=COLOURS[colour], linewidth=0.8, alpha=0.55)
        means = [sum(losses) / len(losses) for losses in zip(*seeds, strict=True)]
        axes.plot(given, means, color=COLOURS[colour], linewidth=1.8, marker="o", markersize=3.5, label=label)
    for (label, loss), line in zip(levels.items(), ("--", ":", "-."), strict=False):
        _level(axes, loss, label, line)
    highest = max(loss for seeds in curves.values() for losses in seeds for loss in losses)
    axes.set(xlabel="characters given", ylabel="loss (nats)", ylim=(0, 1.35 * highest))
    axes.legend(loc="upper right", ncols=2)
    return figure


def _level(axes: Axes, loss: float, label: str, line: str) -> None:
    axes.axhline(loss, color=COLOURS["grey"], linestyle=line, linewidth=1.4, label=label)
