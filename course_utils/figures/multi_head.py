"""The pictures of lesson 06."""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from matplotlib.text import Text
from torch import Tensor

from course_utils.figures.diagrams import arrow, canvas
from course_utils.figures.style import COLOURS, new_figure

_SHIRTS = ("orange", "sky", "green", "yellow")
_LEFT, _PARTNER = COLOURS["red"], COLOURS["pink"]
_TOKENS = ("blue", "orange", "green")
_HEADS = ("#6E6E6E", "black", _LEFT, _PARTNER)
_STARTS = [{"color": COLOURS[c], "marker": m} for c, m in (("sky", "s"), ("red", "o"), ("orange", "^"))]
_STEPS = (("red", "o"), ("blue", "s"), ("green", "^"))


def letter(number: int) -> str:
    return "ABCDEFGH"[number]


def _names(letters: Sequence[int]) -> list[str]:
    """Each person's letter, and the seat as a small number."""
    return [f"{letter(number)}$_{seat}$" for seat, number in enumerate(letters)]


def table(letters: Sequence[int], colours: Sequence[int], asked: Sequence[Sequence[int]], seat: int) -> Figure:
    """The people round a table, and what everybody must answer; arrows show the questions of the person in `seat`."""
    figure, axes = new_figure(3.5)
    canvas(axes, 11.6, 6.2)
    centre, n = (2.9, 2.9), len(letters)
    axes.add_patch(Circle(centre, 1.25, facecolor="#F2F2F2", edgecolor=COLOURS["grey"], linewidth=1.2))
    places = [  # against the clock: who looks at the middle has the seat before at the left
        (centre[0] - 2.1 * math.sin(2 * math.pi * i / n), centre[1] + 2.1 * math.cos(2 * math.pi * i / n))
        for i in range(n)
    ]
    for i, (x, y) in enumerate(places):
        _person(axes, x, y, letters[i], colours[i])
        outside = (centre[0] + 1.31 * (x - centre[0]), centre[1] + 1.31 * (y - centre[1]))
        axes.text(*outside, str(i), ha="center", va="center", fontsize=9, color=COLOURS["grey"])
    for other, colour in zip(asked[seat], (_LEFT, _PARTNER), strict=True):
        arrow(axes, places[seat], places[other], colour, shrinkA=17, shrinkB=17, zorder=5)
    columns = (6.6, 7.6, 9.1, 10.7)
    for x, text, colour in zip(columns, ("seat", "person", "to the left", "same colour"), _HEADS, strict=True):
        axes.text(x, 5.85, text, ha="center", va="center", fontsize=9.5, color=colour)
    axes.add_patch(Rectangle((6.1, 5.04 - 0.68 * seat), 5.4, 0.64, facecolor="#EEEEEE", edgecolor="none"))
    for i in range(n):
        y = 5.36 - 0.68 * i
        axes.text(columns[0], y, str(i), ha="center", va="center", fontsize=9, color=COLOURS["grey"])
        for x, person in zip(columns[1:], (i, *asked[i]), strict=True):
            _person(axes, x, y, letters[person], colours[person], 0.27)
    return figure


def _person(axes: Axes, x: float, y: float, letter_number: int, shirt: int, radius: float = 0.4) -> None:
    colour = COLOURS[_SHIRTS[shirt]]
    axes.add_patch(Circle((x, y), radius, facecolor=f"{colour}55", edgecolor=colour, linewidth=1.8, zorder=3))
    size = 11 if radius > 0.3 else 9
    axes.text(x, y - 0.02, letter(letter_number), ha="center", va="center", fontsize=size, zorder=4)


def one_head(
    weights: Float[Tensor, "people people"],
    letters: Sequence[int],
    colours: Sequence[int],
    asked: Int[Tensor, "people 2"],
    means: Float[Tensor, " 2"],
) -> Figure:
    """Left the map of a head, right how its weight is shared, in each row and (`means`) on average over many tables."""
    figure, (axes, bars) = new_figure(3.6, columns=2)
    _map(axes, weights, letters, colours, asked)
    table, pairs = weights.tolist(), asked.tolist()
    rows = [(table[i][left], table[i][partner] * (left != partner)) for i, (left, partner) in enumerate(pairs)]
    rows.append(tuple(means.tolist()))
    places = [*range(len(letters)), len(letters) + 0.6]
    start = [0.0] * len(rows)
    both = [left == partner for left, partner in pairs] + [False]
    for i, (colour, name) in enumerate(((_LEFT, "to the left"), (_PARTNER, "same colour"))):
        widths = [row[i] for row in rows]
        bars.barh(places, widths, left=start, height=0.72, color=colour, label=name)
        for y, x, width, is_both in zip(places, start, widths, both, strict=True):
            if width > 0.1:
                text = f"{width:.2f}".lstrip("0") + ": both are one person" * is_both
                bars.text(x + width / 2, y, text, ha="center", va="center", fontsize=8, color="white")
        start = [x + width for x, width in zip(start, widths, strict=True)]
    names = _names(letters)
    bars.set_yticks(places, [*names, "mean of\n500 tables"])
    for label, colour in zip(bars.get_yticklabels(), colours, strict=False):
        _shirt(label, colour)
    bars.tick_params(length=0)
    bars.invert_yaxis()
    bars.grid(False)
    bars.set(xlim=(0, 1.02), xlabel="weight")
    bars.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2, fontsize=8.5, handlelength=1.2)
    return figure


def head_maps(
    weights: Float[Tensor, "heads people people"],
    letters: Sequence[int],
    colours: Sequence[int],
    asked: Int[Tensor, "people 2"],
) -> Figure:
    """The maps of two heads, with frames at the left neighbour (red) and at the partner (pink)."""
    figure, panels = new_figure(3.8, columns=2)
    for head, axes in enumerate(panels):
        _map(axes, weights[head], letters, colours, asked)
        axes.text(0.5, -0.04, f"head {head}", transform=axes.transAxes, ha="center", va="top")
    handles = [Line2D([], [], color=c, linewidth=2) for c in (_LEFT, _PARTNER)]
    figure.legend(handles, ["sits to the left", "same colour"], loc="outside lower center", ncols=2, fontsize=9)
    return figure


def _map(
    axes: Axes,
    weights: Float[Tensor, "people people"],
    letters: Sequence[int],
    colours: Sequence[int],
    asked: Int[Tensor, "people 2"],
) -> None:
    weights = weights.detach().cpu()
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1)
    names = _names(letters)
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("looked at →", loc="left", fontsize=8.5, color=COLOURS["grey"])
    axes.set_ylabel("← who asks", loc="top", fontsize=8.5, color=COLOURS["grey"])
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        for label, colour in zip(labels, colours, strict=True):
            _shirt(label, colour)
    for query, row in enumerate(weights.tolist()):
        for key, weight in enumerate(row):
            if weight >= 0.05:
                text = "1" if weight > 0.995 else f"{weight:.2f}".lstrip("0")
                colour = "white" if weight > 0.6 else "black"
                axes.text(key, query, text, ha="center", va="center", fontsize=7.5, color=colour)
    for query, (left, partner) in enumerate(asked.tolist()):
        _frame(axes, left, query, _LEFT, 0.48)
        _frame(axes, partner, query, _PARTNER, 0.4)


def _shirt(label: Text, colour: int) -> None:
    box = {"boxstyle": "circle,pad=0.15", "facecolor": f"{COLOURS[_SHIRTS[colour]]}88", "edgecolor": "none"}
    label.set(bbox=box, fontsize=8)


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
                    colour = COLOURS[_TOKENS[value // 10]]
                    corner = (x0 + j, top - 1.5 - i)
                    axes.add_patch(Rectangle(corner, 1, 1, facecolor=f"{colour}44", edgecolor=colour, linewidth=1.2))
                    axes.text(corner[0] + 0.5, corner[1] + 0.5, f"{value:02d}", ha="center", va="center", fontsize=9)
            top -= 1.2 + values.shape[0]
    return figure


def success(
    learned: Mapping[str, Mapping[int, tuple[float, float, float]]], accuracies: Mapping[int, Float[Tensor, " seeds"]]
) -> Figure:
    """Left: the share of models that learn the task, with 95% intervals. Right: every model of one start.

    `learned`: start -> heads -> share, and both ends of its interval; what was not measured is not drawn.
    """
    figure, (left, right) = new_figure(3.4, columns=2, width_ratios=(1.25, 1))
    heads = list(accuracies)
    for i, ((name, by_heads), style) in enumerate(zip(learned.items(), _STARTS, strict=True)):
        places = [heads.index(h) + 0.16 * (i - 1) for h in by_heads]
        shares, lows, highs = zip(*by_heads.values(), strict=True)
        lengths = [[s - low for s, low in zip(shares, lows, strict=True)]]
        lengths += [[high - s for s, high in zip(shares, highs, strict=True)]]
        left.errorbar(places, shares, lengths, label=name, linestyle="none", capsize=3, markersize=6, **style)
    left.set_xticks(range(len(heads)), heads)
    left.set(xlabel="heads", ylabel="share of models that learn it", ylim=(0, 1.04), xlim=(-0.5, len(heads) - 0.5))
    left.legend(loc="lower right", fontsize=8)
    for k, h in enumerate(heads):
        values = accuracies[h].sort().values
        right.scatter(k + torch.linspace(-0.3, 0.3, len(values)), values, s=9, color=COLOURS["red"], linewidths=0)
    right.axhline(0.95, color=COLOURS["grey"], linestyle="--", linewidth=1)
    right.set_xticks(range(len(heads)), heads)
    right.set(xlabel="heads", ylabel="accuracy (bad start)", ylim=(0, 1.04))
    return figure


def memory(
    n_tokens: Sequence[int],
    measured: Mapping[str, Sequence[float]],
    large: Sequence[tuple[int, float]],
    holds: float,
) -> Figure:
    """Measured memory against the number of tokens, the arithmetic for a `large` layer, and what one GPU `holds`."""
    figure, axes = new_figure(3.6)
    giga = 1e9
    for (name, values), (colour, marker) in zip(measured.items(), _STEPS, strict=False):
        axes.plot(n_tokens, [b / giga for b in values], f"{marker}-", color=COLOURS[colour], label=name)
    sizes, values = zip(*large, strict=True)
    axes.plot(sizes, [b / giga for b in values], "--", color=COLOURS["grey"], label="64 heads, float16: arithmetic")
    axes.plot(sizes[-1], values[-1] / giga, "o", color=COLOURS["grey"])
    last = f"{values[-1] / 1e12:.2f} TB"
    axes.annotate(last, (sizes[-1], values[-1] / giga), xytext=(-8, 0), textcoords="offset points", ha="right")
    axes.axhline(holds / giga, color="black", linewidth=1)
    axes.text(n_tokens[0], 1.25 * holds / giga, f"one large GPU: {holds / giga:.0f} GB", fontsize=9)
    axes.set(xscale="log", yscale="log", xlabel="tokens N", ylabel="memory (gigabytes)")
    axes.set_xticks(ticks := [*n_tokens, 25_000, 100_000], [f"{n:,}" for n in ticks], fontsize=8.5)
    axes.minorticks_off()
    axes.legend(fontsize=8.5, loc="lower right")
    return figure
