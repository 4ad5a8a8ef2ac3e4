"""One look for every picture, and one way to show it."""

import base64
import io
from typing import Any

from matplotlib import rcParams
from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind readers can tell apart, but for its red: theirs is called vermilion and
# looks orange. This one, from Paul Tol, is farther from the orange for every kind of eye. One colour means one thing in
# all lessons, and its name here is what a reader would call it.
COLOURS = {
    "black": "#000000",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "red": "#CC3311",
    "pink": "#CC79A7",
    "grey": "#6E6E6E",
}
WIDTH = 6.4  # inches: about 700 pixels at 110 dpi
_SETTINGS: Any = {
    "figure.dpi": 110,
    "savefig.dpi": 110,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


def use() -> None:
    """Make the course's style the default of matplotlib."""
    rcParams.update(_SETTINGS)


def new_figure(height: float, columns: int = 1, rows: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure as wide as the text, `height` inches high, and its axes, as `plt.subplots` gives them.

    It belongs to nobody but the caller: pyplot does not know it, so nothing is shown twice or kept in memory.
    """
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def show(figure: Figure, alt: str) -> None:
    """Show the figure in the notebook. `alt` says what is to be seen, for those who cannot see it."""
    from IPython.display import display

    data = {"image/png": base64.b64encode(png(figure)).decode(), "text/plain": alt}
    display(data, raw=True, metadata={"image/png": {"alt": alt}})
