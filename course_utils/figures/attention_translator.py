"""The pictures of lesson 02, besides the maps themselves (`attention_maps`)."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

from course_utils.figures.diagrams import arrow, box, canvas
from course_utils.figures.style import COLOURS, new_figure

QUERY, KEY, OUTPUT, DECODER = COLOURS["orange"], COLOURS["blue"], COLOURS["red"], COLOURS["green"]
GREY = COLOURS["grey"]


def decoding_step(
    words: Sequence[str],
    query: Float[Tensor, " hidden"],
    states: Float[Tensor, "time hidden"],
    scores: Float[Tensor, " time"],
    weights: Float[Tensor, " time"],
    context: Float[Tensor, " hidden"],
) -> Figure:
    """One step of attention, drawn with the numbers that were computed: state, score, weight, context."""
    rows = len(words)
    figure, axes = new_figure(0.7 * rows + 1.3)
    canvas(axes, 13.4, 1.25 * rows + 2.2)
    top = 1.25 * rows + 1.5
    for x, text in ((2.5, "state $h_i$"), (5.6, "score $e_i$"), (7.7, "weight $a_i$"), (12.2, "context $c_t$")):
        axes.text(x, top + 0.35, text, ha="center", va="center", fontsize=9.5)
    middle = top - 0.6 - 1.25 * (rows - 1) / 2
    for i, word in enumerate(words):
        y = top - 0.6 - 1.25 * i
        axes.text(1.25, y, word, ha="right", va="center")
        box(axes, 2.5, y, 2.1, 0.85, _numbers(states[i]), KEY)
        arrow(axes, (3.6, y + 0.15), (4.95, y + 0.15), KEY)
        arrow(axes, (4.3, y - 0.2), (4.95, y - 0.2), QUERY)
        box(axes, 5.6, y, 1.3, 0.85, f"{scores[i]:.2f}", COLOURS["grey"])
        arrow(axes, (6.3, y), (7.0, y))
        box(axes, 7.7, y, 1.3, 0.85, f"{weights[i]:.2f}", COLOURS["grey"])
        label = y + 0.3 if i <= (rows - 1) / 2 else y - 0.3  # not where the arrow goes
        axes.text(9.65, label, f"{weights[i]:.2f} · {_numbers(states[i])}", ha="center", va="center", fontsize=8)
        arrow(axes, (8.4, y), (11.1, middle + 0.12 * (rows - 1 - 2 * i)), OUTPUT, alpha=0.25 + 0.75 * float(weights[i]))
    box(axes, 12.2, middle, 2.1, 0.95, _numbers(context), OUTPUT)
    box(axes, 4.3, 0.5, 1.7, 0.85, _numbers(query), QUERY)
    axes.plot([4.3, 4.3], [0.95, top - 0.8], color=QUERY, linewidth=1.2, zorder=0)
    axes.text(3.3, 0.5, "the decoder's state $s_{t-1}$ asks", ha="right", va="center", fontsize=9.5)
    return figure


def _numbers(values: Float[Tensor, " n"]) -> str:
    return "[" + ", ".join(f"{v:.2g}" for v in values.tolist()) + "]"


class Look(NamedTuple):
    """One step of a decoder, with the numbers that were computed."""

    read: str  # the previous word
    old_state: Float[Tensor, " hidden"]
    scores: Float[Tensor, " time"]
    weights: Float[Tensor, " time"]
    context: Float[Tensor, " hidden"]
    new_state: Float[Tensor, " hidden"]
    written: str


# Where things stand in `unrolled`, in tenths of an inch. Heights count from the scores of a step.
_FIRST, _LAST, _CONTEXT, _STATE, _WORD = 9.0, 36.6, 42.3, 52.0, 57.6
_NAME, _WEIGHTS, _SUM, _STEP = 2.9, -3.6, -7.6, -15.6
_SHOWN = 10  # numbers of a long vector
_MAP, _SIGNED = matplotlib.colormaps["Blues"], matplotlib.colormaps["PRGn"]
_TWO_WAYS = {"arrowstyle": "<|-|>", "color": KEY, "mutation_scale": 5, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}


def unrolled(
    words: Sequence[str], states: Float[Tensor, "time hidden"], looks: Sequence[Look], encoder: bool = True
) -> Figure:
    """The translator with attention, step by step: states, scores, weights, contexts, decoder states, words.

    A vector of more than three numbers is drawn as a strip: a coloured cell for each of its first ten. `encoder` says
    that the states, and the first one of the decoder, come from an encoder.
    """
    height = 23.4 - _STEP * (len(looks) - 1)
    figure, axes = new_figure(height / 10)
    canvas(axes, 64, height)
    top = height - 4.9
    gap = (_LAST - _FIRST) / len(words)
    columns = [_FIRST + (i + 0.5) * gap for i in range(len(words))]
    heights = [top - 7.9 + _STEP * t for t in range(len(looks))]
    size = 8 if len(looks[0].context) <= 3 else gap - 1.7  # equally long strips can be compared
    _draw_states(axes, words, states, columns, gap, top, heights)
    if encoder:
        arrow(axes, (_LAST - 0.8, top), (_STATE - size / 2, top), DECODER, shrinkA=0, shrinkB=0)
        for x in columns[1:]:
            axes.annotate("", (x - gap / 2 - 0.85, top + 1), (x - gap / 2 + 0.85, top + 1), arrowprops=_TWO_WAYS)
    _vector(axes, _STATE, top, size, "s_0", looks[0].old_state, DECODER)
    axes.text(_STATE, top + 3.1, "decoder", ha="center", va="center", color=DECODER)
    axes.text(_WORD, top, looks[0].read, va="center", color=GREY)
    for t, (look, y) in enumerate(zip(looks, heights, strict=True)):
        above = heights[t - 1] + _SUM if t > 0 else top
        _draw_look(axes, look, t + 1, columns, gap, y)
        _draw_word(axes, look, t + 1, size, y + _SUM, above)
    return figure


def _draw_states(
    axes: Axes,
    words: Sequence[str],
    states: Float[Tensor, "time hidden"],
    columns: list[float],
    gap: float,
    top: float,
    heights: list[float],
) -> None:
    """The encoder's words and states, and a line from each state down to its score of every step."""
    axes.text(0.6, top + 3.1, "encoder", va="center", color=KEY)
    axes.text(0.6, top, "states $h_i$", va="center", fontsize=8.5)
    for i, (x, word, state) in enumerate(zip(columns, words, states, strict=True)):
        axes.text(x, top + 3.1, word, ha="center", va="center")
        _vector(axes, x, top, gap - 1.7, f"h_{i + 1}", state, KEY)
        line, edge = x - gap / 2 + 0.15, x - gap / 2 + 0.85
        axes.plot([edge, line, line], [top - 1, top - 1, heights[-1]], color=KEY, linewidth=1.2, zorder=0.5)
        for y in heights:
            arrow(axes, (line, y), (edge, y), KEY, shrinkA=0, shrinkB=0)


def _draw_look(axes: Axes, look: Look, t: int, columns: list[float], gap: float, y: float) -> None:
    """Step `t` of `unrolled`: the scores at the height `y`, the weights, and the way to the context."""
    middle, width = y + _SUM, gap - 1.7
    band = FancyBboxPatch((0, middle - 2.8), 63.9, _NAME - _SUM + 4.6, boxstyle="round,pad=0,rounding_size=0.6")
    band.set(facecolor="#F4F4F4", edgecolor="none", zorder=0)
    axes.add_patch(band)
    axes.text(0.6, y + _NAME, f"step {t}", va="center", weight="bold")
    for height, text in ((0, "scores $e_i$"), (_WEIGHTS, "weights $a_i$"), (_SUM, "sum of $a_i h_i$")):
        axes.text(0.6, y + height, text, va="center", fontsize=8.5)
    axes.plot([columns[0], _STATE - 2], [y + _NAME] * 2, color=QUERY, linewidth=1.2, zorder=0.5)
    axes.text(_STATE - 3, y + _NAME + 0.3, f"$s_{t - 1}$ asks", ha="right", va="bottom", fontsize=8.5)
    for x, score, weight in zip(columns, look.scores.tolist(), look.weights.tolist(), strict=True):
        arrow(axes, (x, y + _NAME), (x, y + 1.1), QUERY, shrinkA=0, shrinkB=0)
        _cell(axes, x, y, width, score, "white", "black")
        arrow(axes, (x, y - 1.1), (x, y + _WEIGHTS + 1.1), GREY, shrinkA=0, shrinkB=0)
        _cell(axes, x, y + _WEIGHTS, width, weight, _MAP(weight), "white" if weight > 0.6 else "black")
        flow = {"linewidth": 1 + 4 * weight, "alpha": 0.25 + 0.75 * weight, "solid_capstyle": "butt"}
        axes.plot([x, x], [y + _WEIGHTS - 1.1, middle], color=OUTPUT, zorder=0.5, **flow)
    axes.plot([columns[0], _LAST], [middle, middle], color=OUTPUT, linewidth=1.2, zorder=0.5)


def _draw_word(axes: Axes, look: Look, t: int, size: float, y: float, above: float) -> None:
    """Step `t`: context and new state at the height `y`, and the word; the old state stands at the height `above`."""
    straight, half = {"shrinkA": 0, "shrinkB": 0}, size / 2
    axes.plot([_STATE - 2] * 2, [above - 1.9, y - _SUM + _NAME], color=QUERY, linewidth=1.2, zorder=0.5)
    arrow(axes, (_LAST, y), (_CONTEXT - half, y), OUTPUT, zorder=0.5, **straight)
    _vector(axes, _CONTEXT, y, size, f"c_{t}", look.context, OUTPUT)
    arrow(axes, (_CONTEXT + half, y + 0.8), (_STATE - half, y + 0.8), OUTPUT, **straight)
    corner, low, end = _CONTEXT + half + 0.7, y - 2.4, _WORD + 0.5  # below the state, and up to the word
    path = [corner - 0.7, corner, corner, end], [y - 0.8, y - 0.8, low, low]
    axes.plot(*path, color=OUTPUT, linewidth=1.2, zorder=0.5)
    arrow(axes, (end, low), (end, y - 1), OUTPUT, zorder=0.5, **straight)
    arrow(axes, (_STATE, above - 1.9), (_STATE, y + 1.9), DECODER, **straight)
    arrow(axes, (_WORD + 1.4, above - 1.3), (_STATE + 2, y + 1.9), GREY, **straight)
    _vector(axes, _STATE, y, size, f"s_{t}", look.new_state, DECODER)
    arrow(axes, (_STATE + half, y + 0.8), (_WORD - 0.2, y + 0.8), DECODER, **straight)
    axes.text(_WORD, y, look.written, va="center", weight="bold")


def _cell(axes: Axes, x: float, y: float, width: float, value: float, face: Any, text: str) -> None:
    """A number in a frame; weights look as they do in an attention map."""
    axes.add_patch(Rectangle((x - width / 2, y - 1.1), width, 2.2, facecolor=face, edgecolor=GREY, linewidth=0.8))
    digits = f"{value:.2f}" if abs(value) < 9.95 else f"{value:.1f}"
    axes.text(x, y, digits.replace("-", "\N{MINUS SIGN}"), ha="center", va="center", fontsize=8.5, color=text)


def _vector(axes: Axes, x: float, y: float, width: float, name: str, values: Float[Tensor, " n"], colour: str) -> None:
    """A box with a name, and the numbers below it: written, or as a strip if there are more than three."""
    axes.add_patch(Rectangle((x - width / 2, y - 1.8), width, 3.6, facecolor="white", edgecolor="none"))
    box(axes, x, y, width, 3.8, "", colour)
    axes.text(x, y + 0.85, f"${name}$", ha="center", va="center")
    if len(values) <= 3:
        axes.text(x, y - 0.85, _numbers(values), ha="center", va="center", fontsize=8.5)
        return
    cell = (width - 1) / _SHOWN
    for i, value in enumerate(values[:_SHOWN].tolist()):
        corner, colour = (x - width / 2 + 0.5 + i * cell, y - 1.5), _SIGNED(0.5 + value / 2)
        axes.add_patch(Rectangle(corner, cell, 1.6, facecolor=colour, edgecolor="white", linewidth=0.3))


def error_rates(rates: Mapping[str, float]) -> Figure:
    """Alignment error rates as bars, in the given order; lower is better."""
    figure, axes = new_figure(0.42 * len(rates) + 0.7)
    labels, values = list(rates)[::-1], list(rates.values())[::-1]
    bars = axes.barh(labels, values, color=COLOURS["blue"], height=0.6)
    axes.bar_label(bars, fmt="%.2f", padding=4)
    axes.set(xlabel="alignment error rate (0: perfect, 1: all wrong)", xlim=(0, max(values) * 1.15))
    axes.grid(axis="y", visible=False)
    return figure
