"""The pictures of lesson 04."""

from collections.abc import Mapping, Sequence
from itertools import product

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc
from torch import Tensor

from course_utils.figures.diagrams import arrow, box, canvas
from course_utils.figures.style import COLOURS, new_figure

QUERY, KEY, OUTPUT = COLOURS["orange"], COLOURS["blue"], COLOURS["red"]
_WORDS = ("blue", "red", "green", "purple", "orange", "sky", "black")  # one colour a word
_KINDS = {"none": "grey", "sinusoidal": "blue", "learned": "orange", "rotary": "green"}


def order_model(tokens: str) -> Figure:
    """The model of the order task, from the tokens below to the answer above."""
    figure, axes = new_figure(4.0)
    width = 1.5 * len(tokens)
    canvas(axes, width + 3.6, 7.2)
    for i, token in enumerate(tokens):
        x = 1.5 * (i + 0.5)
        colour = {"A": COLOURS["red"], "B": COLOURS["blue"]}.get(token, COLOURS["grey"])
        box(axes, x, 0.5, 1.1, 0.8, token, colour, size=11)
        box(axes, x, 2.0, 1.1, 0.8, f"$x_{{{i}}}$", COLOURS["sky"])
        box(axes, x, 5.0, 1.1, 0.8, "vote", COLOURS["sky"])
        for bottom in (0.95, 2.45, 3.95, 5.45):
            arrow(axes, (x, bottom), (x, bottom + 0.65))
    box(axes, width / 2, 3.5, width - 0.4, 0.8, "self-attention", COLOURS["purple"])
    box(axes, width / 2, 6.55, width - 0.4, 0.8, "mean of the votes: A before B?", COLOURS["green"])
    notes = (
        "the tokens",
        "one vector\nfor each token",
        "every vector looks\nat all of them",
        "one number\nfor each token",
    )
    for y, text in zip((0.5, 2.0, 3.5, 5.0), notes, strict=True):
        axes.text(width + 0.2, y, text, va="center", fontsize=9.5, color=COLOURS["grey"])
    return figure


# ------------------------------------------------------------------ who depends on whom


def influence_maps(
    weights: Float[Tensor, "tokens tokens"], norms: Float[Tensor, "tokens tokens"], words: Sequence[str]
) -> Figure:
    """The attention weights, and how strongly each output moves when each input moves, side by side."""
    figure, panels = new_figure(2.9, columns=2)
    titles = "attention weights", "norm of ∂ output / ∂ input"
    for axes, values, title in zip(panels, (weights, norms), titles, strict=True):
        axes.imshow(values, cmap="Blues", vmin=0, vmax=float(values.max()) * 1.15, aspect="auto")
        axes.set_xticks(range(len(words)), words)
        axes.set_yticks(range(len(words)), words)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.grid(False)
        axes.set_xlabel(title)
        for (i, j), value in zip(product(range(len(words)), repeat=2), values.flatten().tolist(), strict=True):
            colour = "white" if value > 0.65 * values.max() else "black"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8.5, color=colour)
    panels[0].set_ylabel("output of")
    return figure


def equivariance(
    first: Sequence[tuple[str, Float[Tensor, "tokens d"], Sequence[str]]],
    second: Sequence[tuple[str, Float[Tensor, "tokens d"], Sequence[str]]],
) -> Figure:
    """Two ways through the same two operations, one above the other: each step is (title, vectors, words)."""
    steps = max(len(first), len(second))
    figure, rows = new_figure(3.9, columns=steps, rows=2)
    colours = dict(zip(first[0][2], _WORDS, strict=False))
    for panels, way in zip(rows, (first, second), strict=True):
        for axes, (title, vectors, words) in zip(panels, way, strict=True):
            _draw_vectors(axes, vectors, words, colours)
            axes.set_title(title, fontsize=10)
        for spine in panels[-1].spines.values():
            spine.set(visible=True, color=OUTPUT, linewidth=2.5)
    return figure


def _draw_vectors(
    axes: Axes, vectors: Float[Tensor, "tokens d"], words: Sequence[str], colours: Mapping[str, str]
) -> None:
    largest = float(vectors.abs().max())
    axes.imshow(vectors, cmap="PuOr", vmin=-largest, vmax=largest, aspect="auto")
    axes.set_yticks(range(len(words)), words)
    for label, word in zip(axes.get_yticklabels(), words, strict=True):
        label.set_color(COLOURS[colours[word]])
        label.set_fontweight("bold")
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.grid(False)


# ------------------------------------------------------------------ sinusoids


def encoding(table: Float[Tensor, "positions d_model"]) -> Figure:
    """The encoding as a map: a row a position, a column a number."""
    figure, axes = new_figure(3.4)
    image = axes.imshow(table, cmap="PuOr", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    figure.colorbar(image, ax=axes, label="value", ticks=[-1, 0, 1])
    axes.set(xlabel="column (number of the vector)", ylabel="position $t$")
    axes.grid(False)
    return figure


def similarity(
    sinusoids: Float[Tensor, "positions d_model"], learned: Float[Tensor, "positions d_model"], start: Sequence[int]
) -> Figure:
    """Dot products of the encoding of every position with that of every other, and the same as curves."""
    figure, (left, right) = new_figure(3.1, columns=2, width_ratios=(1, 1.25))
    products = sinusoids @ sinusoids.T
    image = left.imshow(products, cmap="Purples", vmin=0)
    figure.colorbar(image, ax=left, label="dot product", shrink=0.8)
    left.set(xlabel="position", ylabel="position")
    left.grid(False)
    _draw_products(right, learned, start, "random vectors", COLOURS["grey"], marker=".", linestyle="none")
    _draw_products(right, sinusoids, start, "sinusoids", COLOURS["blue"], alpha=0.6)
    right.set(xlabel="distance of the two positions", ylabel="dot product")
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, columnspacing=1)
    return figure


def _draw_products(
    axes: Axes, vectors: Float[Tensor, "positions d"], start: Sequence[int], label: str, colour: str, **options
) -> None:
    for t in start:
        distances = torch.arange(len(vectors)) - t
        axes.plot(distances, vectors @ vectors[t], color=colour, label=label if t == start[0] else None, **options)


# ------------------------------------------------------------------ the order task


def order_results(accuracies: Mapping[str, Sequence[float]]) -> Figure:
    """Accuracy of each kind of position, a dot a seed."""
    figure, axes = new_figure(0.42 * len(accuracies) + 0.9)
    labels = list(accuracies)[::-1]
    for y, label in enumerate(labels):
        values = sorted(accuracies[label])
        offsets = [0.12 * (i - (len(values) - 1) / 2) for i in range(len(values))]  # equal values stay visible
        axes.plot(values, [y + o for o in offsets], "o", color=COLOURS[_KINDS[label]], markersize=7, clip_on=False)
    axes.axvline(0.5, color=COLOURS["grey"], linestyle="--", linewidth=1.2)
    axes.text(0.5, len(labels) - 0.42, "guessing", ha="center", va="bottom", fontsize=9, color=COLOURS["grey"])
    axes.set_yticks(range(len(labels)), labels)
    axes.set(xlabel="share of right answers", xlim=(0.4, 1.0), ylim=(-0.5, len(labels) - 0.45))
    axes.grid(axis="y", visible=False)
    return figure


def longer_sequences(
    curves: Mapping[str, Mapping[int, float]], places: Mapping[str, tuple[float, float]], trained: int
) -> Figure:
    """Left: accuracy against length. Right: at one length, A and B among the first places or among the last ones."""
    figure, (left, right) = new_figure(3.2, columns=2, sharey=True)
    for label, values in curves.items():
        left.plot(list(values), list(values.values()), marker="o", color=COLOURS[_KINDS[label]], label=label)
    left.axvspan(0, trained, color=COLOURS["sky"], alpha=0.15, linewidth=0)
    left.text(trained - 1, 0.06, "trained length", rotation=90, ha="right", va="bottom", fontsize=8.5)
    lengths = list(next(iter(curves.values())))
    left.set_xticks(lengths)
    left.set(
        xlabel="tokens in the sequence", ylabel="share of right answers", ylim=(0, 1.1), xlim=(8, max(lengths) + 2)
    )
    left.legend(loc="lower right", fontsize=8.5)
    for x, (label, values) in enumerate(places.items()):
        bars = right.bar([x - 0.2, x + 0.2], values, 0.36, color=COLOURS[_KINDS[label]])
        bars[1].set_alpha(0.45)
        right.bar_label(bars, fmt="%.2f", padding=2, fontsize=8.5)
    right.set_xticks(range(len(places)), list(places))
    right.set(xlabel="24 tokens; A and B among the\nfirst 12 places (dark) or the last 12 (light)")
    right.grid(axis="x", visible=False)
    for axes in (left, right):
        axes.axhline(0.5, color=COLOURS["grey"], linestyle="--", linewidth=1.2)
    return figure


# ------------------------------------------------------------------ rotary positions


def rotated_pair(
    panels: Sequence[tuple[str, Float[Tensor, " 2"], Float[Tensor, " 2"], float]],
) -> Figure:
    """A query and a key of two numbers as arrows, a panel a pair of positions: (title, query, key, dot product)."""
    figure, row = new_figure(2.7, columns=len(panels), sharey=True)
    for axes, (title, query, key, score) in zip(row, panels, strict=True):
        for vector, colour, name in ((query, QUERY, "$q$"), (key, KEY, "$k$")):
            arrow(axes, (0, 0), tuple(vector.tolist()), colour, shrinkA=0, shrinkB=0)
            x, y = (1.25 * vector).tolist()
            axes.text(x, y, name, color=colour, ha="center", va="center", fontsize=12)
        one, other = sorted(float(torch.rad2deg(torch.atan2(v[1], v[0]))) % 360 for v in (query, key))
        if other - one > 180:
            one, other = other, one + 360
        axes.add_patch(Arc((0, 0), 0.7, 0.7, theta1=one, theta2=other, color=COLOURS["grey"]))
        axes.set(xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        axes.set_title(title, fontsize=9.5)
        axes.set_xlabel(f"dot product {score:.2f}")
    return figure


def score_maps(maps: Sequence[tuple[str, Float[Tensor, "queries keys"]]]) -> Figure:
    """Scores of one query and one key at all positions, a panel a way to give the position; one scale for all."""
    figure, row = new_figure(3.1, columns=len(maps), sharey=True)
    largest = max(float(scores.abs().max()) for _, scores in maps)
    for axes, (title, scores) in zip(row, maps, strict=True):
        image = axes.imshow(scores, cmap="PuOr", vmin=-largest, vmax=largest)
        axes.set_title(title, fontsize=10)
        axes.set_xticks(range(0, len(scores), 2))
        axes.set_yticks(range(0, len(scores), 2))
        axes.set_xlabel("position of the key")
        axes.grid(False)
    row[0].set_ylabel("position of the query")
    figure.colorbar(image, ax=row, label="score", shrink=0.8)
    return figure


def layouts(d_k: int) -> Figure:
    """Which columns are a pair, in the interleaved layout (above) and in the half-split one (below)."""
    figure, axes = new_figure(1.9)
    canvas(axes, 1.1 * d_k + 3.4, 3.6)
    for y, name in ((2.6, "interleaved"), (0.7, "half-split")):
        axes.text(3.1, y, name, ha="right", va="center")
        for column in range(d_k):
            pair = column // 2 if name == "interleaved" else column % (d_k // 2)
            first = column % 2 == 0 if name == "interleaved" else column < d_k // 2
            text = f"${'a' if first else 'b'}_{{{pair}}}$"
            box(axes, 3.4 + 1.1 * (column + 0.5), y, 1.0, 0.9, text, COLOURS[_WORDS[pair]], size=11)
            axes.text(3.4 + 1.1 * (column + 0.5), y - 0.68, f"{column}", ha="center", va="center", fontsize=8)
    return figure
