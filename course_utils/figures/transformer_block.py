"""The pictures of lesson 08."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from course_utils.figures.diagrams import arrow, box, canvas
from course_utils.figures.style import COLOURS, new_figure

# The same way to build a block keeps its colour and its marker in all pictures of the lesson.
STYLES = {
    "post-norm": ("blue", "o"),
    "no norms": ("orange", "^"),
    "no residuals": ("red", "s"),
    "neither": ("grey", "x"),
    "pre-norm": ("green", "D"),
}
_PARTS = {"attention": COLOURS["orange"], "MLP": COLOURS["green"], "norm": COLOURS["sky"]}


def block(n_blocks: int) -> Figure:
    """Left the block of 2017 from the bottom to the top, right a stack of them."""
    figure, axes = new_figure(4.3)
    canvas(axes, 15, 10)
    x, grey = 4.2, COLOURS["grey"]
    places = [("attention", 1.9), ("+", 3.15), ("norm", 4.2), ("MLP", 6.0), ("+", 7.25), ("norm", 8.3)]
    axes.text(x, 0.35, "vectors (tokens, d_model)", ha="center", va="center", fontsize=9)
    below = 0.65
    for name, y in places:
        height = 0.9 if name != "+" else 0.6
        arrow(axes, (x, below), (x, y - height / 2), grey)
        if name == "+":
            axes.text(x, y, "+", ha="center", va="center", fontsize=15, color=COLOURS["red"])
        else:
            box(axes, x, y, 2.6, height, name, _PARTS[name], size=10)
        below = y + height / 2
    arrow(axes, (x, below), (x, 9.4), grey)
    axes.text(x, 9.65, "vectors (tokens, d_model)", ha="center", va="center", fontsize=9)
    for start, end in ((1.0, 3.15), (5.1, 7.25)):
        axes.plot([x, x - 2.2, x - 2.2], [start, start, end], color=COLOURS["red"], linewidth=1.6)
        arrow(axes, (x - 2.2, end), (x - 0.3, end), COLOURS["red"])
    for y in (2.1, 6.2):
        axes.text(x - 2.4, y, "residual\nconnection", ha="right", va="center", fontsize=8.5, color=COLOURS["red"])
    axes.text(x + 1.6, 1.9, "mixes the tokens", ha="left", va="center", fontsize=8.5, color=grey)
    for y in (4.2, 6.0, 8.3):
        axes.text(x + 1.6, y, "each token alone", ha="left", va="center", fontsize=8.5, color=grey)
    x, below = 12.4, 0.65
    axes.text(x, 0.35, "vectors", ha="center", va="center", fontsize=9)
    for i in range(4):
        y = 1.9 + 1.95 * i
        arrow(axes, (x, below), (x, y - 0.45), grey)
        name = ("block 1", "block 2", "…", f"block {n_blocks}")[i]
        box(axes, x, y, 2.6, 0.9, name, COLOURS["blue"], size=10)
        below = y + 0.45
    arrow(axes, (x, below), (x, 9.4), grey)
    axes.text(x, 9.65, "vectors", ha="center", va="center", fontsize=9)
    return figure


def who_meets_whom(maps: Sequence[tuple[str, Float[Tensor, "tokens tokens"]]], words: Sequence[str]) -> Figure:
    """How much each output (row) changes with each input (column), as a part of the largest number of its map."""
    figure, grid = new_figure(6.0, columns=2, rows=2)
    for axes, (title, values) in zip(grid.flat, maps, strict=True):
        _map(axes, values.detach().cpu(), words)
        axes.set_title(title, fontsize=10)
    return figure


def _map(axes: Axes, values: Float[Tensor, "tokens tokens"], words: Sequence[str]) -> None:
    axes.imshow(values, cmap="Blues", vmin=0, vmax=values.max().item())
    for i, row in enumerate(values.tolist()):
        for j, value in enumerate(row):
            text = f"{value:.2f}".removeprefix("0") if value else "0"
            dark = value > 0.6 * values.max().item()
            axes.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    axes.set_xticks(range(len(words)), words, fontsize=7.5)
    axes.set_yticks(range(len(words)), words, fontsize=8)
    axes.set_xlabel("column: input", loc="left", fontsize=8, color=COLOURS["grey"])
    axes.set_ylabel("row: output", loc="top", fontsize=8, color=COLOURS["grey"])
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)


def shares(n_tokens: Sequence[int], flops: Mapping[str, Sequence[int]], half: float) -> Figure:
    """How the work of one block is shared, from few tokens to many; `half` is where one half is the attention's N²."""
    figure, axes = new_figure(3.2)
    totals = [sum(parts) for parts in zip(*flops.values(), strict=True)]
    bottom = [0.0] * len(n_tokens)
    for (name, values), colour in zip(flops.items(), ("sky", "green", "orange"), strict=True):
        top = [b + v / t for b, v, t in zip(bottom, values, totals, strict=True)]
        axes.fill_between(n_tokens, bottom, top, color=COLOURS[colour], alpha=0.55, linewidth=0, label=name)
        bottom = top
    axes.axvline(half, color="black", linewidth=1, linestyle="--")
    axes.annotate(f"N = {half:,.0f}", (half, 1), xytext=(5, -13), textcoords="offset points", fontsize=9)
    axes.set(xscale="log", xlabel="tokens N", ylabel="share of the FLOPs", ylim=(0, 1))
    axes.set(xlim=(n_tokens[0], n_tokens[-1]))
    ticks = [n for n in n_tokens if n in (64, 256, 1024, 4096, 16_384)]
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.minorticks_off()
    axes.grid(False)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside upper center", ncols=1, fontsize=8.5)
    return figure


def through_layers(profiles: Mapping[str, Sequence[Sequence[Sequence[float]]]]) -> Figure:
    """Size, what distinguishes the tokens, and gradient after every block, each seed a line."""
    figure, panels = new_figure(3.6, columns=3)
    titles = ("size of the vectors", "distinct, part of the size", "gradient of the loss\nby these vectors")
    for i, (axes, title) in enumerate(zip(panels, titles, strict=True)):
        for name, runs in profiles.items():
            for run in runs:
                axes.plot(run[i], color=COLOURS[STYLES[name][0]], linewidth=1.3, linestyle=_line(name))
        axes.set(yscale="log", xlabel="blocks passed")
        axes.set_title(title, fontsize=9.5)
        axes.tick_params(labelsize=8)
    handles = [Line2D([], [], color=COLOURS[STYLES[name][0]], linewidth=2, linestyle=_line(name)) for name in profiles]
    figure.legend(handles, profiles, loc="outside upper center", ncols=5, fontsize=8.5, columnspacing=1.2)
    return figure


def _line(name: str) -> Literal["-", "--"]:
    """Dashed where another line may lie below."""
    return "--" if name == "no residuals" else "-"


def accuracies(
    right_of: Mapping[str, Mapping[str, Sequence[float]]], stored: Collection[tuple[str, str]], knows_nobody: float
) -> Figure:
    """The worse question of every model: start -> way to build the block -> one number for each seed.

    `stored` names (start, way) that were not trained now: hollow. `knows_nobody` is what one reaches without knowing
    who is who.
    """
    figure, panels = new_figure(
        3.2, columns=len(right_of), sharey=True, width_ratios=[len(w) for w in right_of.values()]
    )
    for axes, (start, ways) in zip(panels, right_of.items(), strict=True):
        for place, (name, values) in enumerate(ways.items()):
            colour, marker = STYLES[name]
            places = [place + 0.13 * (k - (len(values) - 1) / 2) for k in range(len(values))]
            inside = "none" if (start, name) in stored else COLOURS[colour]
            style = {"markerfacecolor": inside, "markersize": 6, "linestyle": "none"}
            axes.plot(places, values, marker, color=COLOURS[colour], **style)
        axes.set_xticks(range(len(ways)), [name.replace(" ", "\n") for name in ways], fontsize=9)
        axes.axhline(knows_nobody, color=COLOURS["grey"], linestyle="--", linewidth=1)
        axes.set(ylim=(0, 1.04), xlim=(-0.5, len(ways) - 0.5))
        axes.set_title(f"{start} start", fontsize=10)
    panels[0].annotate(
        "most frequent letter",
        (-0.4, knows_nobody),
        xytext=(0, 4),
        textcoords="offset points",
        fontsize=8,
        color=COLOURS["grey"],
    )
    panels[0].set_ylabel("right in the worse question")
    return figure
