"""Notebooks as data: read them, write them, name their cells."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import nbformat
from nbformat import NotebookNode


class UnreadableNotebook(ValueError):
    """The file is not a notebook that can be read."""


def read(path: str | Path) -> NotebookNode:
    """The notebook in the file, as nbformat 4.5. Raises `UnreadableNotebook` with the reason."""
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise OSError("it is no regular file")  # a pipe would be waited for without end
        notebook = parse(Path(path).read_text(encoding="utf-8-sig"))
        for number, cell in enumerate(notebook.cells):
            cell.setdefault("id", f"cell-{number}")  # some editors drop the ids
            cell.source.encode()  # text that cannot be written again cannot be run either
            if not isinstance(cell.metadata.get("course", {}), dict):
                raise ValueError(f"metadata.course of cell {number} is not a table")
        notebook.nbformat_minor = max(notebook.nbformat_minor, 5)
        return notebook
    except Exception as error:  # whatever a damaged file makes nbformat raise
        raise UnreadableNotebook(f"{path} is not a readable notebook: {type(error).__name__}: {error}") from error


def parse(text: str) -> NotebookNode:
    """The notebook in the text, as nbformat 4. nbformat's own function has no types."""
    return cast(NotebookNode, nbformat.reads(text, as_version=4))


def write(notebook: NotebookNode, path: str | Path) -> None:
    """Write the notebook as JupyterLab does."""
    Path(path).write_text(nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n", encoding="utf-8", newline="\n")


def role(cell: NotebookNode) -> str | None:
    """What a cell is for: "title", "setup", "answer", "check", "claim", "source", "summary", or None."""
    return cell.metadata.get("course", {}).get("role")


def exercise_name(cell: NotebookNode) -> str:
    """The exercise that an answer or check cell belongs to; empty for other cells."""
    return cell.metadata.get("course", {}).get("exercise") or ""


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def reference_answers(lesson: str) -> dict[str, str]:
    """The source of each exercise's reference, ready for an answer cell."""
    from course_utils.exercises.exercise import exercises_of  # PyTorch: grading a learner's answers does not need it

    return {name: inspect.getsource(e.function).rstrip("\n") for name, e in exercises_of(lesson).items()}


def put_answers(notebook: NotebookNode, answers: Mapping[str, str]) -> None:
    """Replace the source of each answer cell for which `answers` has one."""
    for cell in notebook.cells:
        if role(cell) == "answer":
            cell.source = answers.get(exercise_name(cell), cell.source)


def exercises_only(notebook: NotebookNode) -> None:
    """Keep only set-up, answer and check cells: a quick run that shows which checks pass."""
    notebook.cells = [cell for cell in notebook.cells if role(cell) in ("setup", "answer", "check")]
