"""A progress bar where somebody reads it; nothing of it stays."""

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

from course_utils.strict import is_strict


def bar(items: Iterable[Any] | None = None, **options: Any) -> tqdm:
    """tqdm's bar with its own `options` (total, desc, unit), silent where `is_welcome()` says no."""
    welcome = is_welcome()
    line = _NotebookLine() if welcome and _in_notebook() else None
    return tqdm(items, leave=False, file=line, mininterval=0.3, disable=not welcome, **options)


def is_welcome() -> bool:
    """Whether a progress bar has a reader: a terminal or a notebook, and neither a test nor a build."""
    return not is_strict() and (_in_notebook() or sys.stderr.isatty())


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class _NotebookLine:
    """A file whose last line stands under the notebook's cell: tqdm's own widget would be saved as a dead bar."""

    def __init__(self) -> None:
        from IPython.display import display

        self.shown: Any = display({"text/plain": ""}, raw=True, display_id=True)

    def write(self, text: str) -> None:
        if text:  # tqdm also writes empty strings, to move the cursor
            self.shown.update({"text/plain": text.strip()}, raw=True)

    def flush(self) -> None:
        """Everything is shown at once."""
