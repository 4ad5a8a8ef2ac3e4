"""The pictures of lesson 06."""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from torch import Tensor

from course_utils.figures.diagrams import arrow, canvas
from course_utils.figures.style import COLOURS, new_figure

_SHIRTS = ("orange", "sky", "green", "yellow")
_LEFT, _PARTNER = COLOURS["red"], COLOURS["purple"]
_TOKENS = ("blue", "orange", "green")


def letter(number: int) -> str:
    return "ABCDEFGH"[number]


def table(letters: Sequence[int], colours: Sequence[int], seat: int, asked: Sequence[int]) -> Figure:
    """The people round a table, and the two whom the person in `seat` is asked about."""
    figure, axes = new_figure(3.6)
    canvas(axes, 9.6, 5.4)
    centre, n = (4.8, 2.7), len(letters)
    axes.add_patch(Circle(centre, 1.25, facecolor="#F2F2F2", edgecolor=COLOURS["grey"], linewidth=1.2))
    places = [  # against the clock: who looks at the middle has the seat before at the left
        (centre[0] - 2.0 * math.sin(2 * math.pi * i / n), centre[1] + 2.0 * math.cos(2 * math.pi * i / n))
        for i in range(n)
    ]
    for i, (x, y) in enumerate(places):
        colour = COLOURS[_SHIRTS[colours[i]]]
        axes.add_patch(Circle((x, y), 0.4, facecolor=f"{colour}55", edgecolor=colour, linewidth=2, zorder=3))
        axes.text(x, y, letter(letters[i]), ha="center", va="center", fontsize=11, zorder=4)
        outside = (centre[0] + 1.29 * (x - centre[0]), centre[1] + 1.29 * (y - centre[1]))
        axes.text(*outside, str(i), ha="center", va="center", fontsize=8, color=COLOURS["grey"])
    for other, colour, text, height in (
        (asked[0], _LEFT, "to the left", 4.9),
        (asked[1], _PARTNER, "same colour", 4.3),
    ):
        arrow(axes, places[seat], places[other], colour, shrinkA=17, shrinkB=17, zorder=5)
        axes.text(0.1, height, f"{seat} asks: {text}?", color=colour, fontsize=10, va="center")
        axes.text(0.1, height - 0.28, f"answer: {letter(letters[other])}", color=colour, fontsize=9, va="center")
    return figure


def head_maps(
    weights: Float[Tensor, "heads people people"],
    letters: Sequence[int],
    colours: Sequence[int],
    asked: Int[Tensor, "people 2"],
) -> Figure:
    """One map for each head (one or two), with frames at the left neighbour (red) and at the partner (purple)."""
    n_heads, n = weights.shape[:2]
    figure, panels = new_figure(3.7, columns=2)
    for head, axes in enumerate(panels[:n_heads]):
        axes.imshow(weights[head].detach().cpu(), cmap="Blues", vmin=0, vmax=1)
        axes.set_title("the only head" if n_heads == 1 else f"head {head}", fontsize=10, pad=16)
        names = [letter(number) for number in letters]
        axes.set_xticks(range(n), names)
        axes.set_yticks(range(n), names)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.grid(False)
        for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
            for label, colour in zip(labels, colours, strict=True):
                box = {"boxstyle": "circle,pad=0.15", "facecolor": f"{COLOURS[_SHIRTS[colour]]}88", "edgecolor": "none"}
                label.set(bbox=box, fontsize=8)
        for query, (left, partner) in enumerate(asked.tolist()):
            _frame(axes, left, query, _LEFT, 0.48)
            _frame(axes, partner, query, _PARTNER, 0.38)
    if n_heads == 1:
        panels[1].axis("off")
        handles = [Line2D([], [], color=c, linewidth=2) for c in (_LEFT, _PARTNER)]
        panels[1].legend(handles, ["sits to the left", "wears the same colour"], loc="center left", fontsize=9)
    return figure


def _frame(axes: Axes, x: int, y: int, colour: str, half: float) -> None:
    corner = (x - half, y - half)
    axes.add_patch(Rectangle(corner, 2 * half, 2 * half, fill=False, edgecolor=colour, linewidth=1.6))


def cells(panels: Sequence[tuple[str, Sequence[tuple[str, Float[Tensor, "rows columns"]]]]]) -> Figure:
    """Columns of small tables, each with a title; the colour of a cell is the token (its tens digit) it comes from."""
    figure, columns = new_figure(3.6, columns=len(panels))
    for axes, (title, tables) in zip(columns, panels, strict=True):
        canvas(axes, 5, 9.2)
        axes.set_title(title, fontsize=10)
        top = 8.6
        for name, values in tables:
            axes.text(2.5, top, name, ha="center", va="center", fontsize=9, color=COLOURS["grey"])
            x0 = 2.5 - values.shape[1] / 2
            for i, row in enumerate(values.int().tolist()):
                for j, value in enumerate(row):
                    colour = COLOURS[_TOKENS[value // 10 - 1]]
                    corner = (x0 + j, top - 1.5 - i)
                    axes.add_patch(Rectangle(corner, 1, 1, facecolor=f"{colour}44", edgecolor=colour, linewidth=1.2))
                    axes.text(corner[0] + 0.5, corner[1] + 0.5, str(value), ha="center", va="center", fontsize=9)
            top -= 1.2 + values.shape[0]
    return figure


def success(accuracies: Mapping[str, Mapping[int, Float[Tensor, " seeds"]]], threshold: float) -> Figure:
    """Left: the share of models that learn the task, a bar for each start. Right: every model of the second start."""
    figure, (left, right) = new_figure(3.3, columns=2, width_ratios=(1.25, 1))
    heads = list(next(iter(accuracies.values())))
    colours = ("sky", "red", "orange")
    for i, ((name, by_heads), colour) in enumerate(zip(accuracies.items(), colours, strict=True)):
        shares = [(values > threshold).float().mean().item() for values in by_heads.values()]
        places = [heads.index(h) + 0.27 * (i - 1) for h in by_heads]
        left.bar(places, shares, width=0.25, color=COLOURS[colour], label=name)
        if i == 1:
            tries = [1 - (1 - shares[0]) ** h for h in heads]
            style = {"color": "black", "marker": "_", "markersize": 12, "markeredgewidth": 2, "linestyle": "none"}
            left.plot(places, tries, **style, label="bad: if each head were a try of its own")
    left.set_xticks(range(len(heads)), heads)
    left.set(xlabel="heads", ylabel="share of models that learn it", ylim=(0, 1.02))
    handles, labels = left.get_legend_handles_labels()
    figure.legend([*handles[1:], handles[0]], [*labels[1:], labels[0]], loc="outside upper center", ncols=2, fontsize=8)
    bad = list(accuracies.values())[1]
    for k, h in enumerate(heads):
        values = bad[h].sort().values
        spread = torch.linspace(-0.3, 0.3, len(values))
        right.scatter(k + spread, values, s=9, color=COLOURS["red"], alpha=0.7, linewidths=0)
    right.axhline(threshold, color=COLOURS["grey"], linestyle="--", linewidth=1)
    right.set_xticks(range(len(heads)), heads)
    right.set(xlabel="heads", ylabel="accuracy (bad start)", ylim=(0, 1.02))
    return figure


def memory(n_tokens: Sequence[int], measured: Sequence[float], one_matrix: Sequence[float]) -> Figure:
    """Measured memory against the number of tokens, with what one and two sets of weights take."""
    figure, axes = new_figure(3.1)
    mega = 1e6
    axes.plot(n_tokens, [b / mega for b in one_matrix], color=COLOURS["grey"], linestyle="--", label="weights once")
    twice = [2 * b / mega for b in one_matrix]
    axes.plot(n_tokens, twice, color=COLOURS["blue"], linestyle="--", label="weights twice")
    axes.plot(n_tokens, [b / mega for b in measured], "o", color=COLOURS["red"], label="measured")
    axes.set(xscale="log", yscale="log", xlabel="tokens N", ylabel="memory (megabytes)")
    axes.set_xticks(n_tokens, [f"{n:,}" for n in n_tokens])
    axes.minorticks_off()
    axes.legend()
    return figure
