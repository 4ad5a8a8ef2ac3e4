"""Shapes, drawn from what runs: a function is called with real tensors, and each of its tensors becomes a box.

So a picture of shapes can show nothing that did not happen. What happened is recorded in `tracing`, and where the
boxes stand is found in `flow`.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from torch import Tensor

from course_utils.figures.diagrams import canvas
from course_utils.figures.flow import Flow, Reach, arrange, row_width, spread
from course_utils.figures.style import COLOURS, WIDTH, new_figure
from course_utils.figures.tracing import Traced, trace

MOST_TENSORS, MOST_DIMENSIONS = 14, 4
_ROLES = {
    **dict.fromkeys(("queries", "query", "q"), "orange"),
    **dict.fromkeys(("keys", "key", "k"), "blue"),
    **dict.fromkeys(("values", "value", "v"), "green"),
}


def draw_shapes(function: Callable, inputs: Mapping[str, Tensor], names: Mapping[str, int]) -> Figure:
    """Call `function(**inputs)` and draw its tensors as boxes to scale, from the inputs (top) to the results (bottom).

    `function` is a function or an `nn.Module`. Drawn are the inputs, the variables of the function that hold a
    tensor, and what is returned ("output", where that is no variable). If it ends in `return other(...)`, where
    `other` is a function too, the variables of `other` are drawn as well. Parameters of a module, and other tensors
    that were there before, are not. An arrow leads from each tensor to those that were computed from it.

    `names` names each size, as {"queries": 5, "keys": 7, "d_k": 4}: no two names have the same size, and every size
    that is drawn has a name, also a product such as heads times d_k. The last dimension goes across and the one
    before it down; those before are a stack of sheets (of four, where there are more). One step has the same length
    in all boxes. Queries are orange, keys blue, values green, weight matrices (`w_...`) pink, other inputs sky
    blue, results grey, and the last one red. An arrow has the colour of the tensor from which it comes.

    Raises ValueError for what cannot be drawn: inputs that are no tensors; a function that is not written in Python
    or returns no tensor; tensors without dimensions, with more than 4, or empty; sizes without a name, names that
    share a size; more than 14 tensors; sizes too different for one scale; more side by side than there is room for.
    Errors of the function itself pass through.
    """
    tensors = trace(function, inputs)
    _check(tensors, names)
    flow = arrange([tensor.sources for tensor in tensors])
    return _draw(_to_scale(tensors, names, flow), flow)


def _check(tensors: Sequence[Traced], names: Mapping[str, int]) -> None:
    for one, other in combinations(names, 2):
        if names[one] == names[other]:
            raise ValueError(f"{one} and {other} both have size {names[one]}: give every name a size of its own")
    for tensor in tensors:
        if not 1 <= len(tensor.shape) <= MOST_DIMENSIONS or 0 in tensor.shape:
            raise ValueError(
                f"{tensor.name} has shape {tensor.shape}, but only tensors of 1 to {MOST_DIMENSIONS} dimensions, "
                "none of them empty, can be drawn"
            )
        unnamed = [size for size in tensor.shape if size not in names.values()]
        if unnamed:
            known = ", ".join(f"{name} {size}" for name, size in names.items())
            raise ValueError(f"{tensor.name} has shape {tensor.shape}, but size {unnamed[0]} is none of these: {known}")
    if len(tensors) > MOST_TENSORS:
        listed = ", ".join(tensor.name for tensor in tensors)
        raise ValueError(f"one picture has room for {MOST_TENSORS} tensors, but here are {len(tensors)}: {listed}")


# ------------------------------------------------------------------ the picture, in inches

_TITLE = FontProperties(family="monospace", weight="bold", size=9.5)
_LABEL = FontProperties(size=9)
_LINE, _ROOM, _ARROW, _SHEET, _MARGIN = 0.17, 0.08, 0.38, 0.04, 0.06
_PREFERRED, _LONGEST, _SHORTEST = (2.0, 0.9), (2.4, 1.6), 0.05  # sides (across, down); the least that can be seen
_LEFT = 0.155  # inches a line of the text on the left takes
_HIGHEST = 8.0  # higher only where the boxes would become too small


@dataclass(frozen=True)
class _Drawing:
    """A tensor's box, `scale` inches a step, with its texts: the name and the stack above, the sides left and below."""

    tensor: Traced
    names: Mapping[str, int]
    scale: float
    is_narrow: bool  # whether the text on the left has two lines

    @property
    def colour(self) -> str:
        name, tensor = self.tensor.name, self.tensor
        if name.startswith("w_"):
            return COLOURS["pink"]
        return COLOURS[_ROLES.get(name) or ("sky" if tensor.is_input else "red" if tensor.is_last else "grey")]

    @property
    def steps(self) -> tuple[int, int]:
        return self.tensor.shape[-1], (1, *self.tensor.shape)[-2]

    @property
    def sides(self) -> tuple[float, float]:
        return self.scale * self.steps[0], self.scale * self.steps[1]

    @property
    def sheets(self) -> int:
        """How many sheets lie behind the first."""
        return min(math.prod(self.tensor.shape[:-2]), 4) - 1

    @property
    def texts(self) -> tuple[str, str, str]:
        """What stands above (of a stack), left (of a matrix) and below."""
        called = {size: name for name, size in self.names.items()}
        *stack, down, across = ["", *(f"{called[size]} {size}" for size in self.tensor.shape)]
        return " × ".join(filter(None, stack)), down.replace(" ", "\n" if self.is_narrow else " "), across

    @property
    def reach(self) -> tuple[float, float]:
        """The room that it takes to the left and to the right of the middle of its box."""
        half, (above, left, below) = self.sides[0] / 2, self.texts
        text = max(_width(self.tensor.name, _TITLE), _width(above, _LABEL), _width(below, _LABEL)) / 2
        on_the_left = max(_width(line, _LABEL) for line in left.split("\n"))
        return max(text, half + 0.05 + on_the_left) + _ROOM, max(text, half + _SHEET * self.sheets) + _ROOM

    @property
    def height(self) -> float:
        above, left, _ = self.texts
        lines = 3 if above else 2
        return lines * _LINE + 0.06 + _SHEET * self.sheets + max(self.sides[1], _LEFT * (1 + left.count("\n")))

    def draw(self, axes: Axes, x: float, top: float) -> None:
        (across, down), (above, left, below) = self.sides, self.texts
        middle = top - self.height + _LINE + 0.03 + max(down, _LEFT * (1 + left.count("\n"))) / 2
        x0, y0 = x - across / 2, middle - down / 2
        paper = [1 - 0.25 * (1 - part) for part in to_rgb(self.colour)]
        for i in range(self.sheets, -1, -1):
            corner = (x0 + i * _SHEET, y0 + i * _SHEET)
            axes.add_patch(Rectangle(corner, across, down, facecolor=paper, edgecolor=self.colour, linewidth=1.2))
        if self.scale >= 0.07:  # room for the lines between the steps
            lines = {"color": self.colour, "linewidth": 0.5, "alpha": 0.45}
            axes.vlines([x0 + self.scale * i for i in range(1, self.steps[0])], y0, y0 + down, **lines)
            axes.hlines([y0 + self.scale * i for i in range(1, self.steps[1])], x0, x0 + across, **lines)
        _write(axes, x, top - _LINE / 2, self.tensor.name, _TITLE)
        _write(axes, x, top - 1.5 * _LINE, above, _LABEL)
        _write(axes, x0 - 0.05, middle, left, _LABEL, ha="right", linespacing=1.0)
        _write(axes, x, y0 - 0.03 - _LINE / 2, below, _LABEL)


def _write(axes: Axes, x: float, y: float, text: str, font: FontProperties, ha: str = "center", **options) -> None:
    if text:
        axes.text(x, y, text, ha=ha, va="center", fontproperties=font, **options)


@functools.cache
def _width(text: str, font: FontProperties) -> float:
    return TextPath((0, 0), text, prop=font).get_extents().width / 72 if text else 0.0


def _to_scale(tensors: Sequence[Traced], names: Mapping[str, int], flow: Flow) -> list[_Drawing]:
    """The boxes at the largest scale, up to the preferred one, at which they fit into the picture."""
    across = [tensor.shape[-1] for tensor in tensors]
    down = [(1, *tensor.shape)[-2] for tensor in tensors]
    least, most = min(across + down), max(across + down)
    smallest = _SHORTEST / least
    if smallest * max(across) > _LONGEST[0] or smallest * max(down) > _LONGEST[1]:
        raise ValueError(
            f"sides of {least} and {most} (a vector is 1 high) cannot be drawn to one scale: "
            f"the largest may be at most {int(min(_LONGEST) / _SHORTEST)} times the smallest"
        )
    is_narrow = max(sum(node < len(tensors) for node in row) for row in flow.rows) > 4
    scale = max(smallest, min(_PREFERRED[0] / max(across), _PREFERRED[1] / max(down)))
    while True:
        drawings = [_Drawing(tensor, names, scale, is_narrow) for tensor in tensors]
        reach = _reach(drawings, flow)
        too_wide = [row for row in flow.rows if row_width(row, reach) > WIDTH - 2 * _MARGIN]
        too_high = _total(_heights(drawings, flow)) > _HIGHEST and scale * most > 0.8
        if scale == smallest or not (too_wide or too_high):
            break
        scale = max(smallest, 0.97 * scale)
    if too_wide:
        listed = ", ".join(tensors[node].name for node in too_wide[0] if node < len(tensors))
        raise ValueError(f"no room for these side by side: {listed}. Take smaller sizes or shorter names")
    return drawings


def _reach(drawings: Sequence[_Drawing], flow: Flow) -> Reach:
    bends = {node: (_ROOM, _ROOM) for row in flow.rows for node in row}
    return bends | {node: drawing.reach for node, drawing in enumerate(drawings)}


def _heights(drawings: Sequence[_Drawing], flow: Flow) -> list[float]:
    return [max(drawings[node].height for node in row if node < len(drawings)) for row in flow.rows]


def _total(heights: Sequence[float]) -> float:
    return sum(heights) + _ARROW * (len(heights) - 1) + 2 * _MARGIN


def _draw(drawings: Sequence[_Drawing], flow: Flow) -> Figure:
    x = spread(flow, _reach(drawings, flow), WIDTH - 2 * _MARGIN)
    x = {node: place + _MARGIN for node, place in x.items()}
    heights = _heights(drawings, flow)
    figure, axes = new_figure(_total(heights))
    axes.set_position((0, 0, 1, 1))  # one unit is one inch
    canvas(axes, WIDTH, _total(heights))
    top, rows = _total(heights) - _MARGIN, {}
    for row, height in zip(flow.rows, heights, strict=True):
        rows.update({node: (top, top - height) for node in row})
        top -= height + _ARROW
    for node, drawing in enumerate(drawings):
        drawing.draw(axes, x[node], rows[node][0])
    for route in flow.routes:
        start, *bends, end = route
        points = [(x[start], rows[start][0] - drawings[start].height), (x[start], rows[start][1])]
        points += [(x[bend], y) for bend in bends for y in rows[bend]]
        points += [(x[end] + _shift(route, flow, x), rows[end][0] + 0.03)]
        _draw_arrow(axes, points, drawings[start].colour)
    return figure


def _shift(route: list[int], flow: Flow, x: Mapping[int, float]) -> float:
    """The arrows into a box end side by side, in the order in which they come."""
    routes = sorted((x[other[-2]], other) for other in flow.routes if other[-1] == route[-1])
    return 0.14 * (routes.index((x[route[-2]], route)) - (len(routes) - 1) / 2)


def _draw_arrow(axes: Axes, points: list[tuple[float, float]], colour: str) -> None:
    """Through the points: straight down to the end of a row, then a curve to the top of the next, and so on."""
    path, codes = points[:1], [Path.MOVETO]
    for (x0, y0), (x1, y1) in zip(points[1::2], points[2::2], strict=True):
        path += [(x0, y0), (x0, (y0 + y1) / 2), (x1, (y0 + y1) / 2), (x1, y1)]
        codes += [Path.LINETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    shape = {"arrowstyle": "-|>", "mutation_scale": 8, "linewidth": 1.1}
    axes.add_patch(FancyArrowPatch(path=Path(path, codes), color=colour, **shape))
