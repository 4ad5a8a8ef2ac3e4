"""Curves that several lessons draw."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_utils.figures.style import COLOURS, new_figure

Bin = tuple[int, int]
_ORDER = ("blue", "orange", "green", "pink", "sky", "red")


def running_mean(values: Sequence[float], n: int) -> list[float]:
    """The mean of each value and the ones before it, `n` in all (fewer at the beginning)."""
    return [sum(values[max(0, i - n) : i]) / min(i, n) for i in range(1, len(values) + 1)]


def loss_curve(losses: Sequence[float], *, chance: float, unit: str = "nats per token", smooth: int = 50) -> Figure:
    """The loss of every training step, faint, with its running mean over `smooth` steps and the loss of guessing."""
    figure, axes = new_figure(2.8)
    steps = range(1, len(losses) + 1)
    axes.plot(steps, losses, color=COLOURS["sky"], alpha=0.45, linewidth=0.8, label="each step")
    axes.plot(
        steps,
        running_mean(losses, smooth),
        color=COLOURS["blue"],
        linewidth=2,
        label=f"mean of the last {smooth} steps",
    )
    axes.axhline(chance, color=COLOURS["grey"], linestyle="--", linewidth=1.2, label="all words equally likely")
    axes.set(xlabel="training step", ylabel=f"loss ({unit})", xlim=(0, len(losses)), ylim=(0, None))
    axes.legend(loc="upper right", bbox_to_anchor=(1, 0.9))
    return figure


def bleu_curves(curves: Mapping[str, Sequence[float]], bins: Sequence[Bin]) -> Figure:
    """BLEU against sentence length, a curve a model, a point a bin."""
    figure, axes = new_figure(3.2)
    draw_bleu_curves(axes, curves, bins)
    return figure


def draw_bleu_curves(axes: Axes, curves: Mapping[str, Sequence[float]], bins: Sequence[Bin]) -> None:
    """The curves of `bleu_curves` in given axes; a single curve shows its values too."""
    places = range(len(bins))
    for (label, values), colour in zip(curves.items(), _ORDER, strict=False):
        axes.plot(places, values, marker="o", color=COLOURS[colour], linewidth=2, label=label)
        if len(curves) == 1:
            for place, value in zip(places, values, strict=True):
                axes.annotate(f"{value:.0f}", (place, value), xytext=(6, 6), textcoords="offset points")
    axes.set_xticks(places, [f"{low}–{high}" for low, high in bins])
    axes.set(xlabel="words in the English sentence", ylabel="BLEU (0 to 100)", ylim=(0, 105))
    if len(curves) > 1:
        axes.legend()
