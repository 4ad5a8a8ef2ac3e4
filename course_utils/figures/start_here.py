"""The pictures of lesson 00."""

import textwrap

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_utils.figures.diagrams import arrow, box, canvas
from course_utils.figures.style import COLOURS, new_figure
from course_utils.syllabus import LESSONS

_PARTS = [  # name, first and last lesson, colour
    ("Attention appears", 0, 2, COLOURS["orange"]),
    ("The layer, piece by piece", 3, 6, COLOURS["blue"]),
    ("The Transformer", 7, 12, COLOURS["green"]),
    ("Fast attention", 13, 15, COLOURS["pink"]),
]


def course_map() -> Figure:
    """Every lesson as a box, in order, part by part."""
    figure, axes = new_figure(5.85)
    canvas(axes, 10.4, 9.5)
    top = 9.2
    for part, first, last, colour in _PARTS:
        axes.text(0.1, top, part, fontsize=11, fontweight="bold", color=colour, va="center")
        for place, lesson in enumerate(LESSONS[first : last + 1]):
            row, column = divmod(place, 4)
            title = textwrap.fill(lesson.title, 17)
            x, y = 1.3 + 2.6 * column, top - 0.9 - 1.3 * row
            box(axes, x, y, 2.35, 1.05, f"{lesson.number:02d}\n{title}", colour, size=8.5)
            if column and lesson.number != first:
                arrow(axes, (x - 1.43, y), (x - 1.17, y), colour)
        top -= 0.9 + 1.3 * (1 + (last - first) // 4) - 0.15
    return figure


def grading_flow() -> Figure:
    """What happens to a learner's notebook when it is graded."""
    figure, axes = new_figure(2.3)
    canvas(axes, 10.4, 3.6)
    box(axes, 1.5, 2.7, 2.8, 1.3, "your notebook\n(answers, notes,\nexperiments)", COLOURS["orange"])
    box(axes, 1.5, 0.9, 2.8, 1.3, "the course's notebook\n(text, checks)", COLOURS["blue"])
    box(axes, 5.4, 1.8, 2.8, 1.5, "the course's notebook\nwith your answers,\nrun from top to end", COLOURS["green"])
    box(axes, 9.0, 1.8, 2.4, 1.5, "a result and\npoints for\neach exercise", COLOURS["pink"])
    arrow(axes, (2.95, 2.7), (3.95, 2.2), COLOURS["orange"])
    axes.text(3.5, 2.75, "answer cells", fontsize=8.5, ha="left")
    arrow(axes, (2.95, 0.9), (3.95, 1.4), COLOURS["blue"])
    axes.text(3.5, 0.65, "everything else", fontsize=8.5, ha="left")
    arrow(axes, (6.85, 1.8), (7.75, 1.8), COLOURS["green"])
    return figure


def temperatures(scores: Float[Tensor, " n"], weights: dict[float, Float[Tensor, " n"]]) -> Figure:
    """Bars of the weights that the same scores get, one panel a temperature."""
    figure, panels = new_figure(2.6, columns=len(weights), sharey=True)
    labels = [f"{score:g}" for score in scores.tolist()]
    for axes, (temperature, values) in zip(panels, weights.items(), strict=True):
        bars = axes.bar(labels, values.tolist(), color=COLOURS["blue"])
        axes.bar_label(bars, fmt="%.2f", fontsize=8.5)
        axes.set(title=f"temperature {temperature:g}", xlabel="score", ylim=(0, 1.12))
        axes.title.set_fontsize(10)
    panels[0].set_ylabel("weight")
    return figure
