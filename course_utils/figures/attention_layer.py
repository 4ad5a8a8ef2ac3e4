"""The pictures of lesson 03."""

from collections.abc import Mapping, Sequence
from statistics import mean

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course_utils.corpora.pairs import Pair
from course_utils.figures.attention_maps import attention_maps
from course_utils.figures.curves import running_mean
from course_utils.figures.diagrams import arrow, box, canvas
from course_utils.figures.style import COLOURS, new_figure

QUERY, DATA, OUTPUT = COLOURS["orange"], COLOURS["sky"], COLOURS["red"]
RAW, SCALED = COLOURS["orange"], COLOURS["blue"]


def layer(n_queries: int, n_data: int) -> Figure:
    """The layer from outside: data vectors come in above, queries from the left, outputs leave on the right."""
    figure, axes = new_figure(2.9)
    canvas(axes, 15, 6.8)
    box(axes, 7.5, 2.2, 3.6, 2.4, "attention layer", COLOURS["grey"], size=10)
    for i in range(n_data):
        x = 7.5 + 1.75 * (i - (n_data - 1) / 2)
        box(axes, x, 5.3, 1.5, 0.7, f"$x_{{{i + 1}}}$", DATA)
        arrow(axes, (x, 4.9), (7.5 + 0.7 * (i - (n_data - 1) / 2), 3.5), DATA)
    for i in range(n_queries):
        y = 2.2 + 1.0 * ((n_queries - 1) / 2 - i)
        box(axes, 2.6, y, 1.9, 0.7, f"$q_{{{i + 1}}}$", QUERY)
        arrow(axes, (3.6, y), (5.6, y), QUERY)
        box(axes, 12.4, y, 1.9, 0.7, f"$y_{{{i + 1}}}$", OUTPUT)
        arrow(axes, (9.4, y), (11.4, y), OUTPUT)
    axes.text(7.5, 6.3, "data vectors: what can be looked at", ha="center", va="center")
    axes.text(2.6, 0.35, "queries: who asks", ha="center", va="center")
    axes.text(12.4, 0.35, "outputs: one per query", ha="center", va="center")
    return figure


def plane(
    query: Float[Tensor, "2"], data: Float[Tensor, "n 2"], weights: Float[Tensor, " n"], output: Float[Tensor, "2"]
) -> Figure:
    """Data vectors of two numbers as points that are as large as their weights, the query as an arrow, the output."""
    figure, axes = new_figure(3.3)
    for i, ((x, y), weight) in enumerate(zip(data.tolist(), weights.tolist(), strict=True)):
        axes.scatter(x, y, s=40 + 900 * weight, color=DATA, alpha=0.8, zorder=2)
        label = f"$x_{i + 1}$, weight {weight:.2f}"
        axes.annotate(label, (x, y), xytext=(0, 16 + 10 * weight), textcoords="offset points", ha="center")
    axes.annotate("", query.tolist(), (0, 0), arrowprops={"arrowstyle": "-|>", "color": QUERY, "linewidth": 2})
    axes.annotate("query $q$", query.tolist(), xytext=(4, 8), textcoords="offset points", color=QUERY, ha="center")
    axes.scatter(*output.tolist(), marker="X", s=110, color=OUTPUT, zorder=3)
    axes.annotate(
        "output $y$", output.tolist(), xytext=(-8, -16), textcoords="offset points", color=OUTPUT, ha="center"
    )
    axes.set(xlim=(-1.7, 2.7), ylim=(-0.45, 1.75), xlabel="first number", ylabel="second number", aspect="equal")
    return figure


def keys_that_count(raw: Mapping[int, float], scaled: Mapping[int, float], n_keys: int, share: float = 0.9) -> Figure:
    """How many of a query's keys hold `share` of its weight, against d_k, with the numbers at the points."""
    figure, axes = new_figure(2.7)
    for values, colour, label in _both(raw, scaled):
        axes.plot(list(values), list(values.values()), marker="o", color=colour, linewidth=2, label=label)
        for d_k, value in values.items():
            axes.annotate(
                f"{value:.{0 if value >= 10 else 1}f}",
                (d_k, value),
                xytext=(0, 7),
                textcoords="offset points",
                ha="center",
            )
    axes.axhline(n_keys, color=COLOURS["grey"], linestyle="--", linewidth=1.2)
    axes.annotate(
        f"all {n_keys} keys", (4, n_keys), xytext=(-6, -11), textcoords="offset points", color=COLOURS["grey"]
    )
    axes.set(ylabel=f"keys that hold {100 * share:.0f} %\nof the weight", ylim=(0, 1.08 * n_keys))
    axes.legend(loc="center right", bbox_to_anchor=(1, 0.45))
    _widths(axes, raw)
    return figure


def saturation(raw: Mapping[int, Sequence[float]], scaled: Mapping[int, Sequence[float]], highest: float) -> Figure:
    """Entropy (left) and the norm of the softmax's gradient (right) against d_k.

    Each d_k has its entropy, and the median and the mean of the norm. `highest`: the entropy of equal weights.
    """
    figure, (left, right) = new_figure(3.2, columns=2)
    for values, colour, label in _both(raw, scaled):
        entropies, medians, means = zip(*values.values(), strict=True)
        left.plot(list(values), entropies, marker="o", color=colour, linewidth=2)
        right.plot(list(values), medians, marker="o", color=colour, linewidth=2, label=f"{label}, median")
        right.plot(
            list(values),
            means,
            marker="s",
            markersize=8,
            markerfacecolor="none",
            color=colour,
            linewidth=1.2,
            linestyle="--",
            label=f"{label}, mean",
        )
    left.axhline(highest, color=COLOURS["grey"], linestyle="--", linewidth=1.2)
    left.text(4, highest + 0.08, "all weights equal", color=COLOURS["grey"], fontsize=9)
    left.set(ylabel="entropy of the weights (nats)", ylim=(0, highest + 0.6))
    right.set(ylabel="norm of the softmax's gradient", yscale="log", ylim=(1e-4, 1))
    right.legend(loc="lower left", fontsize=8.5)
    for axes in (left, right):
        _widths(axes, raw)
    return figure


def maps(panels: Sequence[tuple[str, Float[Tensor, "queries data"], Sequence[str], Sequence[str]]]) -> Figure:
    """Weights side by side: (title, weights, names of the data vectors, names of the queries)."""
    named = [(title, weights, Pair(tuple(data), tuple(queries))) for title, weights, data, queries in panels]
    return attention_maps(named, sides=("data", "queries"))


def shares(rows: Mapping[str, Sequence[float]], chance: float) -> Figure:
    """Right answers of several readers, in the given order: a bar for the mean over the seeds, a dot for each seed."""
    figure, axes = new_figure(0.42 * len(rows) + 0.8)
    labels, values = list(rows)[::-1], list(rows.values())[::-1]
    colours = [COLOURS["blue"] if label.startswith("apart") else COLOURS["orange"] for label in labels]
    axes.barh(labels, [mean(shares) for shares in values], color=colours, height=0.6, alpha=0.75)
    for place, seeds in enumerate(values):
        axes.scatter(seeds, [place] * len(seeds), color=COLOURS["black"], s=14, zorder=3)
        axes.annotate(
            f"{100 * mean(seeds):.0f} %", (max(seeds), place), xytext=(7, 0), textcoords="offset points", va="center"
        )
    axes.axvline(chance, color=COLOURS["grey"], linestyle="--", linewidth=1.2)
    axes.set(xlabel="share of right answers on new cards (dashed: guessing)", xlim=(0, 1.12))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    axes.grid(axis="y", visible=False)
    return figure


def training(
    losses: Mapping[str, Sequence[float]], right: Mapping[str, Sequence[float]], chance: tuple[float, float]
) -> Figure:
    """Left: the loss of some readers while they train. Right: their right answers, a dot for each seed.

    `chance`: the loss and the share of guessing.
    """
    figure, (left, dots) = new_figure(3.2, columns=2)
    order = dict(zip(losses, (RAW, COLOURS["green"], COLOURS["pink"], SCALED), strict=True))
    for label, colour in order.items():
        smooth = running_mean(losses[label], 20)
        left.plot(range(1, len(smooth) + 1), smooth, color=colour, linewidth=2)
    for place, (label, colour) in enumerate(reversed(order.items())):
        dots.scatter(right[label], [place] * len(right[label]), color=colour, s=36, alpha=0.8)
        least, most = (100 * extreme(right[label]) for extreme in (min, max))
        side, x, gap = ("left", most, 8) if most < 75 else ("right", least, -8)  # where the words have room
        words = f"{least:.0f} to {most:.0f} %"
        dots.annotate(words, (x / 100, place), xytext=(gap, 0), textcoords="offset points", ha=side, va="center")
    left.axhline(chance[0], color=COLOURS["grey"], linestyle="--", linewidth=1.2)
    left.text(len(losses[next(iter(losses))]), chance[0] + 0.08, "guessing", color=COLOURS["grey"], ha="right")
    left.set(xlabel="training step", ylabel="loss (nats per question)", ylim=(0, 4.2))
    dots.axvline(chance[1], color=COLOURS["grey"], linestyle="--", linewidth=1.2, zorder=0)
    dots.set_yticks(range(len(order)), list(order)[::-1])
    for tick, colour in zip(dots.get_yticklabels(), list(order.values())[::-1], strict=True):
        tick.set(color=colour, fontweight="bold")
    dots.set(xlabel="right answers after the training", xlim=(0, 1.12), ylim=(-0.5, len(order) - 0.4))
    dots.set_xticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])
    dots.grid(axis="y", visible=False)
    return figure


def _both(raw: Mapping, scaled: Mapping) -> list[tuple[Mapping, str, str]]:
    return [(raw, RAW, "without scale"), (scaled, SCALED, "with scale")]


def _widths(axes: Axes, values: Mapping[int, object]) -> None:
    axes.set_xscale("log", base=4)
    axes.set_xticks(list(values), [f"{d_k:,}" for d_k in values])
    axes.set_xlabel("$d_k$")
