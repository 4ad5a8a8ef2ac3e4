"""The pictures of lesson 14."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxtyping import Bool, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

from course_utils.figures.diagrams import arrow, canvas
from course_utils.figures.style import COLOURS, new_figure

# One way to attend, one colour and one marker, in all pictures of the lesson.
_WAYS = {
    "plain": ("red", "o"),
    "tiled": ("blue", "s"),
    "tiled, PyTorch's backward": ("orange", "^"),
    "PyTorch's fused": ("green", "D"),
}


class Move(NamedTuple):
    """What goes between the memories: `millions` of numbers, loaded (to the right) or stored (to the left)."""

    what: str
    loaded: bool
    millions: float


def moves(panels: Mapping[str, Sequence[Move]]) -> Figure:
    """Slow memory at the left, fast memory at the right, and every load and store between them."""
    figure, columns = new_figure(4.3, columns=len(panels))
    for axes, (title, rows) in zip(columns, panels.items(), strict=True):
        canvas(axes, 10, 12.4)
        axes.set_title(f"{title}: {sum(move.millions for move in rows):.1f} million", fontsize=10)
        _memory(axes, 0, 2.1, "slow\nmemory", COLOURS["grey"])
        _memory(axes, 7.9, 2.1, "fast\nmemory", COLOURS["orange"])
        step = 10.6 / len(rows)
        for i, move in enumerate(rows):
            y = 11.2 - step * (i + 0.5)
            ends = ((2.2, y - 0.3), (7.8, y - 0.3))
            colour = COLOURS["blue"] if move.loaded else COLOURS["red"]
            arrow(axes, *(ends if move.loaded else ends[::-1]), colour)
            axes.text(5, y + 0.12, f"{move.what}: {move.millions:.2g}", ha="center", va="center", fontsize=8.5)
    return figure


def _memory(axes: Axes, x: float, width: float, text: str, colour: str) -> None:
    style = "round,pad=0,rounding_size=0.2"
    patch = FancyBboxPatch((x, 0.3), width, 11.4, boxstyle=style, facecolor=f"{colour}33", edgecolor=colour)
    axes.add_patch(patch)
    axes.text(x + width / 2, 6, text, ha="center", va="center", fontsize=9.5)


def tile_walk(
    orders: Mapping[str, Int[Tensor, "row_blocks column_blocks"]],
    visible: Bool[Tensor, "queries keys"],
    size: int,
) -> Figure:
    """In which order the tiles of a matrix of scores are computed (0: never), for blocks of `size`."""
    figure, panels = new_figure(2.9, columns=len(orders))
    n_queries, n_keys = visible.shape
    for axes, (title, order) in zip(panels, orders.items(), strict=True):
        axes.set_title(title, fontsize=9.5)
        for i, row in enumerate(visible.tolist()):
            for j, seen in enumerate(row):
                colour = COLOURS["sky"] if seen else "#DDDDDD"
                axes.add_patch(Rectangle((j, i), 1, 1, facecolor=f"{colour}66", edgecolor="white", linewidth=0.4))
        for i, numbers in enumerate(order.tolist()):
            for j, number in enumerate(numbers):
                height, width = min(size, n_queries - size * i), min(size, n_keys - size * j)
                corner = (size * j, size * i)
                axes.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=COLOURS["blue"], linewidth=1.3))
                text, tone = (str(number), "black") if number else ("–", COLOURS["grey"])
                axes.text(corner[0] + width / 2, corner[1] + height / 2, text, ha="center", va="center", color=tone)
        axes.set(xlim=(-0.1, n_keys + 0.1), ylim=(n_queries + 0.1, -0.1), aspect="equal", xlabel="keys →")
        axes.set_xticks([]), axes.set_yticks([])
        axes.grid(False)
        axes.spines[:].set_visible(False)
    panels[0].set_ylabel("← queries")
    return figure


def memory(
    measured: Mapping[str, Mapping[int, float]], large: Mapping[str, Mapping[int, float]], cards: Mapping[str, float]
) -> Figure:
    """Left: measured bytes by way and tokens. Right: the arithmetic for a `large` layer, and what `cards` hold."""
    figure, (left, right) = new_figure(3.9, columns=2)
    _curves(left, measured, 1e6)
    left.set(xlabel="tokens N", ylabel="measured memory (megabytes)")
    _curves(right, large, 1e9, line="--")
    for (name, holds), place in zip(cards.items(), ("top", "top", "bottom"), strict=False):
        right.axhline(holds / 1e9, color="black", linewidth=0.9)
        shift = 1.12 if place == "bottom" else 0.86
        first = min(min(values) for values in large.values())
        right.text(first, holds / 1e9 * shift, f"{name}: {holds / 1e9:.0f} GB", fontsize=8, va=place)
    right.set(xlabel="tokens N", ylabel="memory for 64 heads (gigabytes)")
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, fontsize=8.5)
    return figure


def traffic(
    counted: Mapping[int, float], formula: Mapping[int, float], plain: float, least: float, sizes: str
) -> Figure:
    """Numbers moved against the size of the fast memory: counted, by the formula, and two bounds."""
    figure, axes = new_figure(3.4)
    axes.plot(*_points(formula, 1e6), "--", color=COLOURS["grey"], label="8 N²d²/M")
    axes.plot(*_points(counted, 1e6), "s", color=COLOURS["blue"], label="tiles: counted while they ran")
    ends = (max(counted), "right"), (min(counted), "left")
    bounds = (plain, "plain attention", "red"), (least, "everything once", "black")
    for (x, side), (value, text, colour) in zip(ends, bounds, strict=True):
        axes.axhline(value / 1e6, color=COLOURS[colour], linewidth=1.3)
        axes.text(x, value / 1e6 * 1.08, f"{text}: {value / 1e6:.2f}", ha=side, fontsize=9)
    axes.set(xscale="log", yscale="log", xlabel="numbers in fast memory M", ylabel=f"millions moved ({sizes})")
    axes.set_xticks(list(counted), [f"{m:,}" for m in counted], fontsize=8)
    axes.set_yticks(ticks := [0.1, 0.2, 0.5], [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.legend(fontsize=9, loc="upper right", bbox_to_anchor=(1, 0.78))
    return figure


def ratios(seconds: Mapping[str, float]) -> Figure:
    """The time of each way to attend, as a multiple of that of the `fused` kernel."""
    bars = {name: value / seconds["fused"] for name, value in seconds.items()}
    figure, axes = new_figure(3.4)
    names = list(bars)
    kinds = (("tiles", "blue"), ("fill", "grey"), ("steps", "red"), ("fused", "green"))
    colours = [next(COLOURS[colour] for word, colour in kinds if word in name) for name in names]
    axes.barh(names, list(bars.values()), color=colours, height=0.66)
    for place, value in enumerate(bars.values()):
        label = axes.text(value, place, f" {value:.2f}", va="center", fontsize=9)
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.6})
    axes.axvline(1, color=COLOURS["green"], linewidth=1.2)
    words = f"time, as a multiple of the fused kernel's {1000 * seconds['fused']:.0f} milliseconds"
    axes.set(xlim=(0, 1.12 * max(bars.values())), xlabel=words)
    axes.grid(False)
    axes.invert_yaxis()
    return figure


def speed(seconds: Mapping[str, Mapping[int, float]], n_bytes: Mapping[str, Mapping[int, float]]) -> Figure:
    """The stored table: seconds and megabytes of each way, against the tokens."""
    figure, (left, right) = new_figure(3.5, columns=2)
    _curves(left, seconds, 1)
    left.set(xlabel="tokens N", ylabel="processor seconds")
    _curves(right, n_bytes, 1e6)
    right.set(xlabel="tokens N", ylabel="megabytes")
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=8.5)
    return figure


def _curves(axes: Axes, curves: Mapping[str, Mapping[int, float]], unit: float, line: str = "-") -> None:
    """One line for each way, both axes logarithmic."""
    for name, values in curves.items():
        colour, marker = _WAYS[name]
        axes.plot(*_points(values, unit), f"{marker}{line}", markersize=4.5, color=COLOURS[colour], label=name)
    axes.set(xscale="log", yscale="log")
    ticks = sorted({n for values in curves.values() for n in values})
    names = [f"{n / 1000:g}k" if n % 1000 == 0 else f"{n // 1024}k" if n >= 1024 else str(n) for n in ticks]
    axes.set_xticks(ticks, names, fontsize=8)
    axes.minorticks_off()


def _points(values: Mapping[int, float], unit: float) -> tuple[list[int], list[float]]:
    return list(values), [value / unit for value in values.values()]
