"""The pictures of lesson 02, besides the maps themselves (`attention_maps`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_utils.corpora.english_french import LENGTH_BINS
from course_utils.figures.curves import draw_bleu_curves
from course_utils.figures.diagrams import arrow, box, canvas
from course_utils.figures.style import COLOURS, new_figure

QUERY, KEY, OUTPUT = COLOURS["orange"], COLOURS["blue"], COLOURS["red"]


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


def error_rates(rates: Mapping[str, float]) -> Figure:
    """Alignment error rates as bars, in the given order; lower is better."""
    figure, axes = new_figure(0.42 * len(rates) + 0.7)
    labels, values = list(rates)[::-1], list(rates.values())[::-1]
    bars = axes.barh(labels, values, color=COLOURS["blue"], height=0.6)
    axes.bar_label(bars, fmt="%.2f", padding=4)
    axes.set(xlabel="alignment error rate (0: perfect, 1: all wrong)", xlim=(0, max(values) * 1.15))
    axes.grid(axis="y", visible=False)
    return figure


def translators(table: dict[str, Any]) -> Figure:
    """BLEU by length from the stored table: a panel for each set of training sentences, a curve a model."""
    sets = list(dict.fromkeys(row["trained_on"] for row in table["rows"]))
    figure, panels = new_figure(3.8, columns=len(sets), sharey=True)
    for axes, trained_on in zip(panels, sets, strict=True):
        rows = [row for row in table["rows"] if row["trained_on"] == trained_on]
        draw_bleu_curves(axes, {row["model"]: row["bleu"] for row in rows}, LENGTH_BINS)
        axes.set_title(f"trained on {trained_on}", fontsize=10)
        axes.tick_params(axis="x", labelsize=8.5)
        axes.get_legend().remove()
    panels[-1].set_ylabel("")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
