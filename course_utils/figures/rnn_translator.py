"""The pictures of lesson 01."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_utils.corpora.english_french import LENGTH_BINS
from course_utils.figures.curves import draw_bleu_curves
from course_utils.figures.diagrams import arrow, box, canvas
from course_utils.figures.style import COLOURS, new_figure

SOURCE, VECTOR, TARGET = COLOURS["blue"], COLOURS["red"], COLOURS["green"]


def unrolled(source: Sequence[str], target: Sequence[str], vector_size: int) -> Figure:
    """The encoder-decoder, step by step: the encoder above, then one vector, then the decoder below."""
    gap, width = 1.75, 1.25
    columns = max(len(source) + 1, len(target) + 1)
    figure, axes = new_figure(4.2)
    canvas(axes, gap * columns, 7.6)
    for i, word in enumerate(source):
        x = gap * (i + 0.5)
        box(axes, x, 6.3, width, 0.8, f"$h_{{{i + 1}}}$", SOURCE)
        axes.text(x, 4.95, word, ha="center", va="center")
        arrow(axes, (x, 5.2), (x, 5.85), SOURCE)
        arrow(axes, (x + width / 2, 6.3), (x + gap - width / 2, 6.3), SOURCE)
    end = gap * (len(source) + 0.5)
    box(axes, end, 6.3, width, 1.5, f"$c$\n{vector_size}\nnumbers", VECTOR)
    _from_vector_to_decoder(axes, end, gap / 2)
    for j, word in enumerate([*target, "</s>"]):
        x = gap * (j + 0.5)
        box(axes, x, 1.7, width, 0.8, f"$s_{{{j + 1}}}$", TARGET)
        axes.text(x, 3.05, word, ha="center", va="center")
        arrow(axes, (x, 2.15), (x, 2.8), TARGET)
        axes.text(x, 0.35, ["<s>", *target][j], ha="center", va="center", color=COLOURS["grey"])
        arrow(axes, (x, 0.6), (x, 1.25), COLOURS["grey"])
        if j < len(target):
            arrow(axes, (x + width / 2, 1.7), (x + gap - width / 2, 1.7), TARGET)
    axes.text(0, 7.2, "encoder: reads the English words", color=SOURCE, va="center")
    axes.text(gap * columns, 3.75, "decoder: writes the French words", color=TARGET, va="center", ha="right")
    return figure


def _from_vector_to_decoder(axes: Axes, x: float, start: float) -> None:
    """The line from the vector, between the two rows, to the first decoder state."""
    left = start - 0.8
    axes.plot([x, x, left, left], [5.5, 4.3, 4.3, 1.7], color=VECTOR, linewidth=1.4)
    arrow(axes, (left, 1.7), (start - 0.6, 1.7), VECTOR)


def padded_batch(words: Sequence[Sequence[str]], lengths: Sequence[int]) -> Figure:
    """A batch as a table: the last valid word of each row in red, the valid words before it in blue, padding dashed."""
    columns = max(len(row) for row in words)
    figure, axes = new_figure(0.45 * len(words) + 0.35)
    canvas(axes, columns * 1.6, len(words))
    for i, (row, length) in enumerate(zip(words, lengths, strict=True)):
        for t, word in enumerate(row):
            colour = SOURCE if t < length - 1 else VECTOR if t == length - 1 else COLOURS["grey"]
            box(axes, 1.6 * t + 0.8, len(words) - i - 0.5, 1.5, 0.8, word, colour, faint=t >= length, size=8.5)
    return figure


def length_curve(scores: Sequence[float], table: dict[str, Any]) -> Figure:
    """The BLEU of the lesson's own model by length, over the stored trainings of the same model with other seeds."""
    figure, axes = new_figure(3.2)
    stored = _curves(table)[128, 128, 1000]
    for i, curve in enumerate(stored):
        label = f"{len(stored)} stored trainings, one seed each" if i == 0 else None
        axes.plot(curve, color=COLOURS["grey"], linewidth=1, label=label)
    draw_bleu_curves(axes, {"your model": scores}, LENGTH_BINS)
    axes.legend()
    return figure


def bottleneck(table: dict[str, Any]) -> Figure:
    """BLEU by length from the stored table (states of 512): four widths; then two widths and two training times."""
    figure, (left, right) = new_figure(3.4, columns=2, sharey=True)
    means, colours = mean_bleu(table), {8: "blue", 32: "orange", 128: "green", 512: "pink"}
    for size, name in colours.items():
        left.plot(means[size, 512, 1000], color=COLOURS[name], marker="o", linewidth=2, label=f"{size} numbers")
    for size in (128, 512):
        colour = COLOURS[colours[size]]
        right.plot(means[size, 512, 1000], color=colour, marker="o", linewidth=2)
        right.plot(means[size, 512, 4000], "--", color=colour, marker="s", markerfacecolor="white", linewidth=2)
    for label, line, marker, inside in (("1,000 steps", "-", "o", None), ("4,000 steps", "--", "s", "white")):
        right.plot([], line, color=COLOURS["grey"], marker=marker, markerfacecolor=inside, linewidth=2, label=label)
    left.set_title("width, after 1,000 steps", fontsize=10)
    right.set_title("width (colours as left) and training", fontsize=10)
    left.set_ylabel("BLEU (0 to 100)")
    for axes in (left, right):
        axes.set_xticks(range(len(LENGTH_BINS)), [f"{low}–{high}" for low, high in LENGTH_BINS])
        axes.set(xlabel="words in the English sentence", ylim=(0, 105))
        axes.tick_params(axis="x", labelsize=8.5)
        axes.legend(handlelength=3)
    return figure


def mean_bleu(table: dict[str, Any]) -> dict[tuple[int, int, int], list[float]]:
    """From the stored table: (numbers in the vector, in the states, steps) -> BLEU by length, mean of the seeds."""
    return {
        setting: [sum(values) / len(values) for values in zip(*curves, strict=True)]
        for setting, curves in _curves(table).items()
    }


def _curves(table: dict[str, Any]) -> dict[tuple[int, int, int], list[list[float]]]:
    """(numbers in the vector, in the states, steps) -> BLEU by length, a list for each seed."""
    curves: dict[tuple[int, int, int], list[list[float]]] = {}
    for row in table["rows"]:
        curves.setdefault((row["context_size"], row["hidden_size"], row["steps"]), []).append(row["bleu"])
    return curves
