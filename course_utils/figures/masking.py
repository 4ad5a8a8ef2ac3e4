"""The pictures of lesson 05."""

from collections.abc import Mapping, Sequence

from jaxtyping import Bool
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from torch import Tensor

from course_utils.figures.curves import running_mean
from course_utils.figures.diagrams import arrow, box, canvas
from course_utils.figures.style import COLOURS, new_figure

GIVEN, ANSWER, FUTURE = COLOURS["blue"], COLOURS["green"], COLOURS["red"]
Panel = tuple[str, Bool[Tensor, "rows columns"], Sequence[str], Sequence[str]]
_LINES = ("orange", "blue", "green")  # the same model keeps its colour in all curves of the lesson


def next_character(text: str) -> Figure:
    """What the model is given (below) and what it must predict (above): the same text, one place further."""
    gap, size = 1.6, 1.0
    text = text.replace(" ", "␣")
    n = len(text) - 1
    figure, axes = new_figure(2.1)
    canvas(axes, gap * n + 3.2, 4.2)
    for y, letters, colour, label in ((3.3, text[1:], ANSWER, "to predict"), (0.9, text[:-1], GIVEN, "given")):
        axes.text(0.1, y, label, color=colour, va="center")
        for i, letter in enumerate(letters):
            box(axes, 3.2 + gap * (i + 0.5), y, size, size, letter, colour, size=11)
    for i in range(n):
        x = 3.2 + gap * (i + 0.5)
        arrow(axes, (x, 1.45), (x, 2.75), COLOURS["grey"])
        if i < n - 1:
            arrow(axes, (x + gap - 0.2, 1.45), (x + 0.25, 2.75), FUTURE, linestyle="--")
    return figure


def mask_panels(
    panels: Sequence[Panel], columns: int, *, rows_name: str = "query", columns_name: str = "key"
) -> Figure:
    """Boolean tables side by side: (title, table, names of the rows, names of the columns); blue is True."""
    rows = -(-len(panels) // columns)
    tallest = max(table.shape[0] for _, table, _, _ in panels)
    figure, grid = new_figure(rows * (1.1 + 0.27 * tallest), columns=columns, rows=rows, squeeze=False)
    for place, (axes, (title, table, row_names, column_names)) in enumerate(zip(grid.flat, panels, strict=True)):
        _draw_table(axes, table, row_names, column_names)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(columns_name)
        axes.set_ylabel(rows_name if place % columns == 0 else "")
    return figure


def _draw_table(axes: Axes, table: Bool[Tensor, "rows columns"], rows: Sequence[str], columns: Sequence[str]) -> None:
    """Cells with white lines between them; what is False is grey and crossed out where there is room."""
    n_rows, n_columns = table.shape
    axes.imshow(table.cpu(), cmap=ListedColormap(["#E4E4E4", GIVEN]), vmin=0, vmax=1, aspect="auto")
    if table.numel() <= 60:
        for i, j in (~table.cpu()).nonzero().tolist():
            axes.text(j, i, "×", ha="center", va="center", color=COLOURS["grey"])
    axes.set_xticks(range(n_columns), columns, fontsize=8.5)
    axes.set_yticks(range(n_rows), rows, fontsize=8.5)
    axes.set_xticks([j - 0.5 for j in range(1, n_columns)], minor=True)
    axes.set_yticks([i - 0.5 for i in range(1, n_rows)], minor=True)
    axes.grid(False)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)


def loss_curves(curves: Mapping[str, Sequence[float]], *, chance: float, smooth: int = 20) -> Figure:
    """The training loss of each model, as the mean of the last `smooth` steps."""
    figure, axes = new_figure(2.8)
    for (label, losses), colour in zip(curves.items(), _LINES, strict=False):
        axes.plot(
            range(1, len(losses) + 1), running_mean(losses, smooth), color=COLOURS[colour], linewidth=2, label=label
        )
        axes.set_xlim(0, len(losses))
    _guessing(axes, chance)
    axes.set(xlabel="training step", ylabel="loss (nats per character)", ylim=(0, None))
    axes.legend(loc="upper right", bbox_to_anchor=(1, 0.88))
    return figure


def honest_curves(curves: Mapping[str, Sequence[float]], *, chance: float) -> Figure:
    """The loss of the next character against the number of characters that the model was given."""
    figure, axes = new_figure(3.0)
    for (label, losses), colour in zip(curves.items(), _LINES, strict=False):
        axes.plot(range(1, len(losses) + 1), losses, color=COLOURS[colour], marker="o", markersize=3.5, label=label)
    _guessing(axes, chance)
    axes.set(xlabel="characters given", ylabel="loss (nats)", ylim=(0, None))
    axes.legend(loc="upper right")
    return figure


def _guessing(axes: Axes, chance: float) -> None:
    axes.axhline(chance, color=COLOURS["grey"], linestyle="--", linewidth=1.2, label="all characters equally likely")
