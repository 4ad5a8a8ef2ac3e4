"""The pictures of lesson 03."""

from collections.abc import Mapping, Sequence

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
    axes.text(12.4, 0.35, "outputs: one a query", ha="center", va="center")
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


def examples(raw: Mapping[int, Float[Tensor, " keys"]], scaled: Mapping[int, Float[Tensor, " keys"]]) -> Figure:
    """Weights over the keys, largest first: a column for each d_k, the rows without and with the scale."""
    figure, panels = new_figure(3.2, columns=len(raw), rows=2, sharex=True, sharey=True)
    for row, (weights, colour) in enumerate(((raw, RAW), (scaled, SCALED))):
        for axes, (d_k, values) in zip(panels[row], weights.items(), strict=True):
            axes.bar(range(1, len(values) + 1), values.tolist(), color=colour, width=0.9)
            axes.text(0.95, 0.85, f"largest: {values[0]:.2f}", transform=axes.transAxes, ha="right", va="center")
            if row == 0:
                axes.set_title(f"$d_k$ = {d_k:,}", fontsize=10)
    panels[0][0].set(ylabel="without scale", ylim=(0, 1.05))
    panels[1][0].set_ylabel("with scale")
    for axes in panels[1]:
        axes.set_xlabel("keys, largest weight first", fontsize=9)
    return figure


def saturation(
    raw: Mapping[int, tuple[float, float]], scaled: Mapping[int, tuple[float, float]], highest: float
) -> Figure:
    """Entropy (left) and median norm of the softmax's gradient (right) against d_k; `highest`: equal weights."""
    figure, (left, right) = new_figure(3.1, columns=2)
    for values, colour, label in ((raw, RAW, "without scale"), (scaled, SCALED, "divided by $\\sqrt{d_k}$")):
        for axes, which in ((left, 0), (right, 1)):
            points = [pair[which] for pair in values.values()]
            axes.plot(list(values), points, marker="o", color=colour, linewidth=2, label=label)
    left.axhline(highest, color=COLOURS["grey"], linestyle="--", linewidth=1.2)
    left.text(4, highest + 0.08, "all weights equal", color=COLOURS["grey"], fontsize=9)
    left.set(ylabel="entropy of the weights (nats)", ylim=(0, highest + 0.6))
    right.set(ylabel="gradient of the softmax (median)", yscale="log", ylim=(1e-4, 1))
    right.legend(loc="lower left")
    for axes in (left, right):
        axes.set_xscale("log", base=4)
        axes.set_xticks(list(raw), [f"{d_k:,}" for d_k in raw])
        axes.set_xlabel("$d_k$")
    return figure


def maps(panels: Sequence[tuple[str, Float[Tensor, "queries data"], Sequence[str], Sequence[str]]]) -> Figure:
    """Weights side by side: (title, weights, names of the data vectors, names of the queries)."""
    named = [(title, weights, Pair(tuple(data), tuple(queries))) for title, weights, data, queries in panels]
    return attention_maps(named, sides=("data", "queries"))


def shares(rows: Mapping[str, float], chance: float) -> Figure:
    """The share of right answers of several readers, as bars, in the given order; the dashed line is guessing."""
    figure, axes = new_figure(0.42 * len(rows) + 0.8)
    labels, values = list(rows)[::-1], list(rows.values())[::-1]
    colours = [COLOURS["blue"] if label.startswith("apart") else COLOURS["orange"] for label in labels]
    bars = axes.barh(labels, values, color=colours, height=0.6)
    axes.bar_label(bars, labels=[f"{value:.0%}" for value in values], padding=4)
    axes.axvline(chance, color=COLOURS["grey"], linestyle="--", linewidth=1.2)
    axes.set(xlabel="share of right answers on new cards (dashed: guessing)", xlim=(0, 1.1))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    axes.grid(axis="y", visible=False)
    return figure


def training(
    losses: Mapping[str, Sequence[float]],
    raw: Mapping[int, float],
    scaled: Mapping[int, float],
    chance: tuple[float, float],
) -> Figure:
    """Left: the loss of some readers while they train. Right: right answers against d_k. `chance`: loss, share."""
    figure, (left, right) = new_figure(3.3, columns=2)
    for (label, values), colour in zip(losses.items(), (SCALED, RAW, COLOURS["green"]), strict=False):
        left.plot(range(1, len(values) + 1), running_mean(values, 20), color=colour, linewidth=2, label=label)
    left.axhline(chance[0], color=COLOURS["grey"], linestyle="--", linewidth=1.2)
    left.set(xlabel="training step", ylabel="loss (nats a question)", ylim=(0, 5.2), title="$d_k$ = 64")
    left.legend(loc="upper right", fontsize=8.5)
    for values, colour, label in ((raw, RAW, "without scale"), (scaled, SCALED, "with scale")):
        _share_curve(right, values, colour, label)
    right.axhline(chance[1], color=COLOURS["grey"], linestyle="--", linewidth=1.2)
    right.set(xlabel="$d_k$", ylabel="share of right answers", ylim=(0, 1.05), title="after the training")
    right.legend(loc="lower left", bbox_to_anchor=(0, 0.05))
    for axes in (left, right):
        axes.title.set_fontsize(10)
    return figure


def _share_curve(axes: Axes, values: Mapping[int, float], colour: str, label: str) -> None:
    axes.plot(list(values), list(values.values()), marker="o", color=colour, linewidth=2, label=label)
    axes.set_xscale("log", base=4)
    axes.set_xticks(list(values), [str(d_k) for d_k in values])
