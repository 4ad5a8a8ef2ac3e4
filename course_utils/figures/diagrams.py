"""Boxes and arrows."""

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch


def box(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    text: str,
    colour: str,
    *,
    faint: bool = False,
    size: float = 9,
) -> None:
    """A rounded box with its centre at (x, y), in data units, and a text in its middle."""
    corner = (x - width / 2, y - height / 2)
    patch = FancyBboxPatch(
        corner,
        width,
        height,
        boxstyle="round,pad=0,rounding_size=0.08",
        facecolor="white" if faint else f"{colour}33",
        edgecolor=colour,
        linewidth=1.4,
        linestyle="--" if faint else "-",
    )
    axes.add_patch(patch)
    axes.text(x, y, text, ha="center", va="center", fontsize=size, color="#6E6E6E" if faint else "black")


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = "#6E6E6E", **options) -> None:
    """An arrow between two points, in data units."""
    patch = FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=10, color=colour, linewidth=1.2, **options)
    axes.add_patch(patch)


def canvas(axes: Axes, width: float, height: float) -> None:
    """Empty axes of this size, without ticks, in which one unit is as long in x as in y."""
    axes.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    axes.axis("off")
