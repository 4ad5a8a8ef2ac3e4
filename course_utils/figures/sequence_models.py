"""The pictures of lesson 07."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from torch import Tensor

from course_utils.figures.style import COLOURS, new_figure

_STYLES = {
    "RNN": ("blue", "o"),
    "CNN": ("green", "s"),
    "dilated CNN": ("pink", "D"),
    "attention": ("orange", "^"),
    "attention, in steps": ("red", "v"),
}
_FAINT = "#BBBBBB"


def style(name: str) -> dict[str, Any]:
    """The colour and the marker of a kind of layer, the same in all pictures."""
    colour, marker = _STYLES[name]
    return {"color": COLOURS[colour], "marker": marker}


def stream(
    keys: Sequence[int], values: Sequence[int], questions: Sequence[int], answers: Sequence[int], steps: Sequence[int]
) -> Figure:
    """The beginning of a sequence of pairs and questions; arrows lead from the questions of `steps` to their pairs."""
    figure, axes = new_figure(2.5)
    n = len(keys)
    axes.set(xlim=(-1.25, n - 0.4), ylim=(-0.35, 4.1))
    axes.axis("off")
    rows = ((3.6, "step", "grey"), (3.0, "key", "blue"), (2.4, "value", "green"))
    rows += ((1.0, "question", "orange"), (0.2, "answer", "red"))
    for y, text, colour in rows:
        axes.text(-0.6, y, text, ha="right", va="center", color=COLOURS[colour])
    for i in range(n):
        axes.text(i, 3.6, str(i), ha="center", va="center", color=COLOURS["grey"], fontsize=9)
        for y, number, colour in ((3.0, keys[i], "blue"), (2.4, values[i], "green")):
            _cell(axes, i, y, number, colour)
        if i:  # at step 0 nothing can be asked
            _cell(axes, i, 1.0, questions[i], "orange")
            _cell(axes, i, 0.2, answers[i], "red")
    for i in steps:
        pair = list(keys).index(questions[i])
        arrow = {"arrowstyle": "-|>", "mutation_scale": 10, "linewidth": 1.3, "color": COLOURS["orange"]}
        axes.add_patch(FancyArrowPatch((i, 1.3), (pair, 2.08), **arrow))
    return figure


def _cell(axes: Axes, x: float, y: float, number: int, colour: str) -> None:
    box = Rectangle((x - 0.4, y - 0.27), 0.8, 0.54, facecolor=f"{COLOURS[colour]}33", edgecolor=COLOURS[colour])
    axes.add_patch(box)
    axes.text(x, y, str(number), ha="center", va="center", fontsize=9)


def recall(
    distances: Sequence[int],
    accuracy: Mapping[str, Sequence[Sequence[float]]],
    chance: float,
    guess: Sequence[float] = (),
) -> Figure:
    """Recall against distance. Each model may have several runs: the first is drawn with points, the others thin.

    `guess` is what a reader has predicted for the first model, drawn dotted.
    """
    figure, axes = new_figure(3.3)
    _accuracy(axes, distances, accuracy, chance)
    if guess:
        guessed = dict(zip(distances, guess, strict=False))  # a guess may be shorter, or too long
        colour = style(next(iter(accuracy)))["color"]
        axes.plot(list(guessed), list(guessed.values()), ":", color=colour, label="your guess")
    axes.legend(fontsize=9, loc="center right" if "attention" in accuracy else "upper right")
    return figure


def recall_and_copy(
    distances: Sequence[int],
    recalled: Mapping[str, Sequence[Sequence[float]]],
    copied_distances: Sequence[int],
    copied: Mapping[str, Sequence[Sequence[float]]],
    chance: float,
) -> Figure:
    """Left: recall, where the distance changes. Right: copying, one model for each distance."""
    figure, (left, right) = new_figure(3.4, columns=2, sharey=True, width_ratios=(1.25, 1))
    _accuracy(left, distances, recalled, chance)
    _accuracy(right, copied_distances, copied, chance)
    left.set_title("recall: all distances mixed", fontsize=10)
    right.set_title("copying: one distance", fontsize=10)
    right.set_ylabel("")
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=5, fontsize=9)
    return figure


def _accuracy(
    axes: Axes, distances: Sequence[int], accuracy: Mapping[str, Sequence[Sequence[float]]], chance: float
) -> None:
    for name, runs in accuracy.items():
        first, *others = runs
        axes.plot(distances, first, label=name, linewidth=1.8, markersize=5, **style(name))
        for run in others:
            axes.plot(distances, run, color=style(name)["color"], linewidth=0.8, alpha=0.8)
    axes.axhline(chance, color=COLOURS["grey"], linestyle="--", linewidth=1, label="guessing")
    axes.set(xscale="log", ylim=(0, 1.04), xlabel="distance (steps)", ylabel="share of right answers")
    axes.set_xticks(distances, [str(d) for d in distances])
    axes.minorticks_off()


# ---- who can reach whom ----------------------------------------------------------------------------------------


def who_reaches_whom(
    words: Sequence[str],
    start: int,
    end: int,
    layers: Mapping[str, Bool[Tensor, "layers positions positions"]],
    n_steps: Mapping[str, Sequence[int]],
) -> Figure:
    """For each kind of layer a panel: all connections, those that lead to `end`, and a shortest way from `start`.

    `n_steps` are the numbers below the words: in how many steps each of them reaches `end`. The kind "RNN" is drawn as
    one row of states, the others as layers one above the other.
    """
    levels = {name: 1 if name == "RNN" else steps[start] for name, steps in n_steps.items()}
    heights = [level + 1.15 for level in levels.values()]
    figure, panels = new_figure(0.62 * sum(heights) + 0.3, rows=len(layers), height_ratios=heights)
    for axes, (name, reads), height in zip(panels, layers.items(), heights, strict=True):
        axes.set(xlim=(-1.6, len(words) - 0.4), ylim=(-0.95, height - 0.75))
        axes.axis("off")
        colour = style(name)["color"]
        axes.text(-1.6, height - 1.15, name, ha="left", va="center", fontsize=11, color=colour, weight="bold")
        axes.text(-1.6, -0.62, "steps", ha="left", va="center", fontsize=9, color=COLOURS["grey"])
        for i, word in enumerate(words):
            weight = "bold" if i in (start, end) else "normal"
            axes.text(i, -0.2, word, ha="center", va="center", fontsize=10, weight=weight)
        for i, steps in enumerate(n_steps[name]):
            axes.text(i, -0.62, str(steps), ha="center", va="center", fontsize=10, color=colour, weight="bold")
        draw = _draw_chain if name == "RNN" else _draw_layers
        draw(axes, reads, start, end, levels[name], colour)
    return figure


def _draw_chain(axes: Axes, reads: Tensor, start: int, end: int, _levels: int, colour: str) -> None:
    for i in range(reads.shape[-1]):
        on_the_way = start <= i <= end
        word = colour if i == start else _FAINT
        _line(axes, (i, 0.0), (i, 1.0), word, 1.2, linestyle=(0, (1, 2)))  # not counted as a step
        if i and reads[0, i, i - 1]:
            is_step = on_the_way and i > start
            _line(axes, (i - 1, 1.0), (i, 1.0), colour if is_step else COLOURS["grey"] if i <= end else _FAINT, 2.2)
        _node(axes, i, 1.0, colour if on_the_way else COLOURS["grey"] if i <= end else _FAINT)


def _draw_layers(axes: Axes, reads: Tensor, start: int, end: int, levels: int, colour: str) -> None:
    below = [{end}]  # what `end` depends on, from the top level down
    for level in range(levels - 1, -1, -1):
        below.insert(0, {j for i in below[0] for j in reads[level, i].nonzero().flatten().tolist()})
    way = _way(reads, start, end, levels)
    for level in range(levels):
        for i, j in reads[level].nonzero().tolist():
            leads = i in below[level + 1]
            shade, width = (COLOURS["grey"], 1.1) if leads else (_FAINT, 0.5)
            if (way[level], way[level + 1]) == (j, i):
                shade, width = colour, 2.4
            _line(axes, (j, float(level)), (i, level + 1.0), shade, width)
    for level in range(1, levels + 1):
        for i in range(reads.shape[-1]):
            shade = colour if way[level] == i else COLOURS["grey"] if i in below[level] else _FAINT
            _node(axes, i, float(level), shade)


def _way(reads: Tensor, start: int, end: int, levels: int) -> list[int]:
    """A position on each level, from `start` to `end`: a shortest way that makes its large steps first."""
    known = [{start}]
    for layer in reads[:levels]:
        known.append({i for i in range(len(layer)) if any(layer[i, j] for j in known[-1])})
    way = [end]
    for level in range(levels - 1, -1, -1):
        way.insert(0, max(j for j in known[level] if reads[level, way[0], j]))
    return way


def _line(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, width: float, **looks: Any
) -> None:
    options = {"arrowstyle": "-|>", "mutation_scale": 8, "shrinkA": 4, "shrinkB": 4.5}
    order = 1 if colour == _FAINT else 2 if width < 2 else 3
    axes.add_patch(FancyArrowPatch(start, end, color=colour, linewidth=width, zorder=order, **options, **looks))


def _node(axes: Axes, x: float, y: float, colour: str) -> None:
    axes.plot(x, y, "o", markersize=6.5, color=colour, zorder=4)


# ---- curves ----------------------------------------------------------------------------------------------------


def reach_by_depth(
    depths: Sequence[int], measured: Mapping[str, Sequence[int]], computed: Mapping[str, Sequence[int]]
) -> Figure:
    """How many inputs an output depends on, by the number of layers: measured (points) and computed (lines)."""
    figure, axes = new_figure(3.0)
    for (name, points), kind in zip(measured.items(), ("CNN", "dilated CNN"), strict=True):
        colour, marker = style(kind)["color"], style(kind)["marker"]
        axes.plot(depths, computed[name], color=colour, linewidth=1.2, label=f"{name}: receptive_field")
        axes.plot(depths, points, marker, color=colour, markersize=6, label=f"{name}: measured")
        for depth, point in zip(depths, points, strict=True):
            above = kind == "dilated CNN"
            offset = (-4, 5) if above else (4, -12)
            axes.annotate(
                str(point),
                (depth, point),
                xytext=offset,
                textcoords="offset points",
                fontsize=8.5,
                ha="right" if above else "left",
                color=colour,
            )
    axes.set(xlabel="layers", ylabel="inputs in reach")
    axes.set_xticks(depths)
    axes.margins(y=0.12)
    axes.legend(fontsize=9)
    return figure


def gradient_reach(curves: Mapping[str, Sequence[Float[Tensor, " time"]]], smallest: float = 1e-16) -> Figure:
    """The gradient of the last output, by the distance of the input; a line for each seed. Zeros are not drawn."""
    figure, axes = new_figure(3.4)
    for name, runs in curves.items():
        for n, run in enumerate(runs):
            values = [float(x) if x > smallest else None for x in run]
            end = next((i for i, x in enumerate(values) if x is None), len(values))
            line = {"color": style(name)["color"], "linewidth": 1.3, "zorder": 3 if name == "CNN" else 2}
            axes.plot(range(1, end), values[1:end], label=name if n == 0 else None, alpha=0.8, **line)
            if n == 0 and float(run[min(end, len(run) - 1)]) == 0:  # it ends: nothing at all beyond
                axes.plot(end - 1, values[end - 1], marker="X", markersize=8, **line)
                note = {"xytext": (-12, -52), "textcoords": "offset points", "fontsize": 9, "color": line["color"]}
                arrow = {"arrowstyle": "-", "color": line["color"]}
                axes.annotate("beyond: exactly 0", (end - 1, values[end - 1]), arrowprops=arrow, ha="right", **note)
    axes.set(xscale="log", yscale="log", ylim=(smallest, 20), xlabel="distance of the input (steps)")
    axes.set(ylabel="size of the gradient")
    axes.set_xticks(ticks := [1, 2, 4, 8, 16, 32, 64, 128], [str(t) for t in ticks])
    axes.minorticks_off()
    axes.legend(fontsize=9, loc="lower left")
    return figure


def costs(
    n_tokens: Sequence[int],
    lines: Mapping[str, Sequence[float]],
    *,
    ylabel: str,
    points: Mapping[str, Sequence[float]] | None = None,
    mark: tuple[int, str] | None = None,
) -> Figure:
    """What a layer costs against the number of tokens; both axes are logarithmic. `mark` is a number of tokens."""
    figure, axes = new_figure(3.4)
    for name, values in lines.items():
        looks = style(name)
        marker = "" if points else looks["marker"]
        axes.plot(n_tokens, values, color=looks["color"], marker=marker, linewidth=1.6, markersize=5, label=name)
    for name, values in (points or {}).items():
        axes.plot(n_tokens, values, linestyle="", markersize=6, **style(name), label=f"{name}, counted")
    axes.set(xscale="log", yscale="log", xlabel="tokens N", ylabel=ylabel)
    axes.set_xticks(n_tokens, [f"{n:,}" for n in n_tokens])
    if mark:
        axes.axvline(mark[0], color=COLOURS["grey"], linestyle="--", linewidth=1)
        top = axes.get_ylim()[1]
        axes.text(mark[0] * 1.08, top, mark[1], fontsize=9, va="top", color=COLOURS["grey"])
    axes.minorticks_off()
    axes.legend(fontsize=9, loc="lower right")
    return figure
