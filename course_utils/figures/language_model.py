"""The pictures of lesson 09."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import mean

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator
from torch import Tensor

from course_utils.figures.curves import running_mean
from course_utils.figures.diagrams import arrow, box, canvas
from course_utils.figures.style import COLOURS, new_figure

GREY = COLOURS["grey"]
COUNTED, OURS, TABLE, DRAWN = COLOURS["orange"], COLOURS["blue"], COLOURS["green"], COLOURS["red"]
_TINTS = ("blue", "orange")  # of two tokens side by side
_LINES = {"blue": "o", "orange": "s", "green": "^"}


def visible(text: str) -> str:
    """The text with a sign for each space and each end of a line."""
    return text.replace(" ", "␣").replace("\n", "↵")


def cut_texts(rows: Sequence[tuple[str, Sequence[str]]]) -> Figure:
    """The same text in several rows, (label, its tokens): a box for each token."""
    figure, axes = new_figure(0.3 + 0.46 * len(rows))
    n_signs = sum(map(len, rows[0][1]))
    axes.set(xlim=(-0.3 * n_signs, n_signs + 0.5), ylim=(-0.1, len(rows)))
    axes.axis("off")
    for i, (label, tokens) in enumerate(rows):
        y, x = len(rows) - 0.55 - i, 0.0
        axes.text(-0.5, y, label, ha="right", va="center", fontsize=8.5)
        for j, token in enumerate(tokens):
            colour, width = COLOURS[_TINTS[j % 2]], len(token)
            corner = (x + 0.06, y - 0.33)
            patch = Rectangle(corner, width - 0.12, 0.66, facecolor=f"{colour}33", edgecolor=colour, linewidth=1)
            axes.add_patch(patch)
            name = visible(token)
            axes.text(x + width / 2, y, name, ha="center", va="center", fontsize=8, family="monospace")
            x += width
    return figure


def vocabulary(sizes: Sequence[int], n_tokens: Sequence[int], n_numbers: Sequence[int]) -> Figure:
    """For some numbers of different tokens: how long the text is, and how large the table."""
    figure, panels = new_figure(2.6, columns=2)
    parts = (
        (n_tokens, "the text (thousand tokens)", OURS, "left", 4),
        (n_numbers, "the table (thousand numbers)", TABLE, "right", -4),
    )
    for axes, (values, label, colour, side, shift) in zip(panels, parts, strict=True):
        thousands = [value / 1000 for value in values]
        axes.plot(sizes, thousands, "o-", color=colour, markersize=4, linewidth=1.8)
        for i in (0, -2, -1):
            text, point = f"{thousands[i]:.0f}", (sizes[i], thousands[i])
            axes.annotate(text, point, xytext=(shift, 4), textcoords="offset points", ha=side, fontsize=8.5)
        margin = 0.16 * (sizes[-1] - sizes[0])
        axes.set(xlabel="different tokens V", ylabel=label, ylim=(0, 1.15 * max(thousands)))
        axes.set_xlim(sizes[0] - margin, sizes[-1] + margin)
        axes.set_xticks([sizes[i] for i in (0, -2, -1)])
    return figure


def model(n_tokens: int, d_model: int, n_ids: int, n_layers: int) -> Figure:
    """What goes through the model from left to right, with the shapes of one text, and the table at both ends."""
    figure, axes = new_figure(1.95)
    canvas(axes, 16.4, 4.6)
    y, wide = 3.2, f"{n_tokens} × {d_model}"
    places = (1.1, 4.4, 8.2, 11.4, 14.9)
    texts = ("ids", "vectors", f"{n_layers} blocks", "norm", "logits")
    colours = (GREY, OURS, OURS, OURS, DRAWN)
    shapes = (f"{n_tokens}", wide, wide, wide, f"{n_tokens} × {n_ids}")
    for x, text, colour, shape in zip(places, texts, colours, shapes, strict=True):
        box(axes, x, y, 2.0, 1.0, text, colour, size=10)
        axes.text(x, y + 0.95, shape, ha="center", va="center", fontsize=9)
    for left, right in pairwise(places):
        arrow(axes, (left + 1.05, y), (right - 1.05, y))
    box(axes, 8.2, 0.6, 4.2, 1.0, f"one table, {n_ids} × {d_model}", TABLE, size=10)
    for start, end, words, side in ((6.05, 2.75, "its rows", "right"), (10.35, 13.15, "transposed", "left")):
        arrow(axes, (start, 0.6), (end, 3.1), TABLE)
        axes.text((start + end) / 2 + (0.3 if side == "left" else -0.3), 1.5, words, ha=side, fontsize=9, color=TABLE)
    return figure


def learning(bits: Sequence[float], baselines: Mapping[str, float], smooth: int = 20) -> Figure:
    """Bits per byte at each training step, and what counting needs on held-out text."""
    figure, axes = new_figure(3.2)
    steps = range(1, len(bits) + 1)
    axes.plot(steps, bits, color=COLOURS["sky"], alpha=0.45, linewidth=0.8, label="each step")
    axes.plot(steps, running_mean(bits, smooth), color=OURS, linewidth=2, label=f"mean of the last {smooth}")
    for name, value in baselines.items():
        axes.axhline(value, color=COUNTED, linestyle="--", linewidth=1.2)
        axes.text(len(bits), value + 0.04, name, ha="right", va="bottom", fontsize=8.5, color=COUNTED)
    axes.set(xlabel="training step", ylabel="bits per byte", xlim=(0, len(bits)), ylim=(1.3, 4.4))
    axes.legend(loc="upper center")
    return figure


def compared(rows: Mapping[str, float], ours: Sequence[str]) -> Figure:
    """A bar for each way to predict, with its bits per byte; ours in blue."""
    figure, axes = new_figure(0.6 + 0.3 * len(rows))
    colours = [OURS if name in ours else COUNTED for name in rows]
    axes.barh(range(len(rows)), list(rows.values()), height=0.7, color=colours)
    for y, value in enumerate(rows.values()):
        axes.text(value + 0.06, y, f"{value:.2f}", va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.invert_yaxis()
    axes.set(xlabel="bits per byte of held-out text: fewer are better", xlim=(0, 1.1 * max(rows.values())))
    return figure


def one_step(names: Sequence[str], panels: Sequence[tuple[str, Sequence[float]]], first: Sequence[float]) -> Figure:
    """How often each token is drawn: (title, shares). The grey bars in each panel are the model's probabilities."""
    figure, grid = new_figure(4.6, columns=3, rows=2, sharex=True, sharey=True)
    for axes, (title, shares) in zip(grid.flat, panels, strict=True):
        places = range(len(names))
        axes.barh(places, first, height=0.78, color="#D5D5D5")
        axes.barh(places, shares, height=0.4, color=DRAWN)
        for y, share in enumerate(shares):
            text = f"{share:.2f}".lstrip("0") if share else "never"
            end = max(share, first[y])
            axes.text(end + 0.02, y, text, va="center", fontsize=8, color="black" if share else GREY)
        axes.set_yticks(places, [visible(name) for name in names], family="monospace", fontsize=9)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.set_title(title, fontsize=10)
    grid[0, 0].invert_yaxis()
    grid[0, 0].set_xlim(0, 1.2)
    for axes in grid[1]:
        axes.set_xlabel("share of the draws")
    return figure


def scaling(sizes: Sequence[int], bits: Sequence[Sequence[float]], baselines: Mapping[str, float]) -> Figure:
    """Bits per byte against the number of parameters: a point for each seed, a line through the means."""
    figure, axes = new_figure(3.2)
    axes.plot(sizes, [mean(seeds) for seeds in bits], color=OURS, linewidth=1.8, label="language models, mean")
    for size, seeds in zip(sizes, bits, strict=True):
        axes.plot([size] * len(seeds), seeds, "o", color=OURS, markersize=4, alpha=0.6)
        text = f"{mean(seeds):.2f}"
        axes.annotate(text, (size, min(seeds)), xytext=(0, -14), textcoords="offset points", ha="center", fontsize=8.5)
    for name, value in baselines.items():
        axes.axhline(value, color=COUNTED, linestyle="--", linewidth=1.2)
        axes.text(sizes[-1] * 1.2, value + 0.01, name, ha="right", va="bottom", fontsize=8.5, color=COUNTED)
    axes.set(xscale="log", xlabel="parameters", ylabel="bits per byte", xlim=(sizes[0] / 1.3, sizes[-1] * 1.3))
    axes.set_xticks(list(sizes), [f"{size:,}" for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.margins(y=0.16)
    return figure


def copying(curves: Mapping[str, Sequence[Sequence[float]]], every: int, chance: float) -> Figure:
    """How often the next letter is right, against the steps: a line for each seed, a colour for each kind of model."""
    figure, axes = new_figure(3.0)
    for (name, seeds), (colour, marker) in zip(curves.items(), _LINES.items(), strict=False):
        for i, accuracies in enumerate(seeds):
            steps = [every * k for k in range(len(accuracies))]
            label = name if i == 0 else None
            axes.plot(steps, accuracies, f"{marker}-", markersize=3, linewidth=1.2, color=COLOURS[colour], label=label)
    axes.axhline(chance, color=GREY, linestyle="--", linewidth=1.2)
    longest = max(len(accuracies) for seeds in curves.values() for accuracies in seeds)
    axes.text(every * longest, chance + 0.015, "guessing", ha="right", fontsize=8.5, color=GREY)
    axes.set(xlabel="training step", ylabel="share of right letters", ylim=(0, 1.02))
    axes.legend(loc="center right", bbox_to_anchor=(1, 0.52))
    return figure


def copy_maps(
    maps: Sequence[Float[Tensor, "time time"]], letters: Sequence[str], frames: Sequence[Sequence[tuple[int, int]]]
) -> Figure:
    """The weights of both layers, with red frames at the places (row, column) that the text speaks of."""
    figure, panels = new_figure(3.7, columns=2)
    names = [f"{letter}$_{{{i}}}$" for i, letter in enumerate(letters)]
    for i, (axes, weights, places) in enumerate(zip(panels, maps, frames, strict=True)):
        _draw_map(axes, weights, names)
        axes.text(0.5, -0.04, f"layer {i + 1}", transform=axes.transAxes, ha="center", va="top")
        for row, column in places:
            frame = Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, fill=False, edgecolor=DRAWN, linewidth=1.6)
            axes.add_patch(frame)
    return figure


def _draw_map(axes: Axes, weights: Float[Tensor, "time time"], names: Sequence[str]) -> None:
    table = weights.detach().cpu().tolist()
    axes.imshow(table, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("looked at →", loc="left", fontsize=8.5, color=GREY)
    axes.set_ylabel("← read last", loc="top", fontsize=8.5, color=GREY)
    axes.tick_params(length=0)
    axes.grid(False)
    for row, values in enumerate(table):
        for column, weight in enumerate(values):
            if weight >= 0.05:
                text = "1" if weight > 0.995 else f"{weight:.2f}".lstrip("0")
                colour = "white" if weight > 0.6 else "black"
                axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
