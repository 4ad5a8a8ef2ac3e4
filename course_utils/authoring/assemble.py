"""Notebooks as data: read them, name their cells, and put answers into them."""

import inspect
import re
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_utils import syllabus


class UnreadableNotebook(ValueError):
    """The file is not a notebook that can be read."""


def read(path: str | Path) -> NotebookNode:
    """The notebook in the file, as nbformat 4.5. Raises `UnreadableNotebook` with the reason."""
    try:
        notebook = nbformat.reads(Path(path).read_text(encoding="utf-8-sig"), as_version=4)
        for number, cell in enumerate(notebook.cells):
            cell.setdefault("id", f"cell-{number}")  # some editors drop the ids
            cell.source.encode()  # text that cannot be written again cannot be run either
            if not isinstance(cell.metadata.get("course", {}), dict):
                raise ValueError(f"metadata.course of cell {number} is not a table")
        notebook.nbformat_minor = max(notebook.nbformat_minor, 5)
        return notebook
    except Exception as error:  # whatever a damaged file makes nbformat raise
        raise UnreadableNotebook(f"{path} is not a readable notebook: {type(error).__name__}: {error}") from error


def write(notebook: NotebookNode, path: str | Path) -> None:
    """Write the notebook as JupyterLab does."""
    Path(path).write_text(nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n", encoding="utf-8", newline="\n")


def role(cell: NotebookNode) -> str | None:
    """What a cell is for: "title", "setup", "answer", "check", "claim", "source", "summary", or None."""
    return cell.metadata.get("course", {}).get("role")


def exercise_name(cell: NotebookNode) -> str | None:
    """The exercise that an answer or check cell belongs to."""
    return cell.metadata.get("course", {}).get("exercise")


def lesson_of(notebook: NotebookNode, path: str | Path) -> syllabus.LessonInfo:
    """Which lesson a notebook is: its metadata say so, else its file name. ValueError if neither does."""
    return syllabus.find(notebook.metadata.get("course", {}).get("lesson") or Path(path).stem)


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


def put_learners_work(notebook: NotebookNode, work: NotebookNode) -> None:
    """Put a learner's answers, and the code cells they added, into the course's own `notebook`.

    Nothing else of `work` is taken: its checks may have been changed. An answer is found by its metadata, by its
    cell's id, or by the name it defines. An added cell follows the cell of the course that it followed there.
    """
    names = [exercise_name(cell) for cell in notebook.cells if role(cell) == "answer"]
    found = {name: cell for name in names if (cell := _find_answer(work, name)) is not None}
    by_source = {_plain(cell.source): cell.id for cell in notebook.cells}
    put_answers(notebook, {name: cell.source for name, cell in found.items()})
    place = next((i + 1 for i, cell in enumerate(notebook.cells) if role(cell) == "setup"), 0)
    for number, cell in enumerate(work.cells):
        own = _own_id(cell, found, {c.id for c in notebook.cells}, by_source)
        if own is not None:
            place = next(i for i, c in enumerate(notebook.cells) if c.id == own) + 1
        elif cell.cell_type == "code":
            notebook.cells.insert(place, nbformat.v4.new_code_cell(cell.source, id=f"added-{number}"))
            place += 1


def _own_id(
    cell: NotebookNode, answers: Mapping[str, NotebookNode], ids: set[str], by_source: Mapping[str, str]
) -> str | None:
    """The id of the course's cell that a learner's cell is; None for a cell that the learner added."""
    for name, answer in answers.items():
        if cell is answer or (role(cell) == "answer" and exercise_name(cell) == name):
            return name
    return cell.id if cell.id in ids else by_source.get(_plain(cell.source))


def _plain(source: str) -> str:
    """The source without what editors change: line ends, and blanks at the ends of lines and of the cell."""
    return "\n".join(line.rstrip() for line in source.splitlines()).strip()


def _find_answer(work: NotebookNode, name: str) -> NotebookNode | None:
    cells = code_cells(work)
    for cell in cells:
        if (role(cell) == "answer" and exercise_name(cell) == name) or cell.id == name:
            return cell
    defines = re.compile(rf"^((async )?def|class) {name}\b|^{name} *=[^=]", re.MULTILINE)
    check = next((i for i, cell in enumerate(cells) if f'lesson.check("{name}")' in cell.source), len(cells))
    return next((cell for cell in reversed(cells[:check]) if defines.search(cell.source)), None)


def exercises_only(notebook: NotebookNode) -> None:
    """Keep only set-up, answer and check cells: a quick run that shows which checks pass."""
    notebook.cells = [cell for cell in notebook.cells if role(cell) in ("setup", "answer", "check")]
