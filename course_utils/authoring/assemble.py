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
    cell's id, or by its `def` line; of copies the first counts. An added cell follows the cell it followed there.
    """
    names = [exercise_name(cell) for cell in notebook.cells if role(cell) == "answer"]
    found = {name: _find_answer(work, name) for name in names}
    put_answers(notebook, {name: cell.source for name, cell in found.items() if cell is not None})
    ids = {cell.id for cell in notebook.cells}
    sources = {cell.source for cell in code_cells(notebook)}
    taken = [cell for cell in found.values() if cell is not None]
    place = 0
    for number, cell in enumerate(work.cells):
        own = next((name for name, answer in found.items() if answer is cell), cell.id)
        if own in ids:
            place = next(i for i, c in enumerate(notebook.cells) if c.id == own) + 1
        elif cell.cell_type == "code" and cell.source not in sources and not any(cell is t for t in taken):
            notebook.cells.insert(place, nbformat.v4.new_code_cell(cell.source, id=f"added-{number}"))
            place += 1


def _find_answer(work: NotebookNode, name: str) -> NotebookNode | None:
    define = re.compile(rf"^(async )?def {name}\b", re.MULTILINE)
    tests = (
        lambda cell: role(cell) == "answer" and exercise_name(cell) == name,
        lambda cell: cell.id == name,
        lambda cell: define.search(cell.source),
    )
    cells = code_cells(work)
    return next((cell for test in tests for cell in cells if test(cell)), None)


def exercises_only(notebook: NotebookNode) -> None:
    """Keep only set-up, answer and check cells: a quick run that shows which checks pass."""
    notebook.cells = [cell for cell in notebook.cells if role(cell) in ("setup", "answer", "check")]
