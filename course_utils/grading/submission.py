"""A learner's notebook: which lesson it is, which of its cells are used, and which are not."""

import re
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_utils import syllabus
from course_utils.authoring.assemble import code_cells, exercise_name, role

_OPENS = re.compile(r"""^\s*lesson\s*=\s*start\(\s*["'](\w+)["']""", re.MULTILINE)
_OF_THE_COURSE = ("title", "setup", "check", "claim", "source", "summary")


def lesson_of(notebook: NotebookNode, path: str | Path) -> syllabus.LessonInfo:
    """Which lesson a notebook is: what its metadata say, else what its set-up cell opens, else its file's name.

    Raises ValueError when none of these names a lesson, or when that lesson is still to come.
    """
    recorded = _course(notebook).get("lesson")
    opened = (match[1] for cell in code_cells(notebook) if (match := _OPENS.search(cell.source)))
    name = recorded or next(opened, None) or _in_file_name(Path(path).stem)
    if name is None:
        raise ValueError(
            f"{path} belongs to no lesson of this course: neither its metadata nor its set-up cell nor its name tells"
        )
    try:
        lesson = syllabus.find(name) if isinstance(name, str) else None
    except ValueError:
        lesson = None
    if lesson is None or not lesson.ready:
        raise ValueError(f"{path} says that it is the lesson {name!r}, which is not in this version of the course")
    return lesson


def _course(notebook: NotebookNode) -> dict[str, Any]:
    """What the notebook says of itself; nothing, if somebody has put something else in that place."""
    course = notebook.metadata.get("course")
    return course if isinstance(course, dict) else {}


def _in_file_name(stem: str) -> str | None:
    """The lesson that a file like `02_attention_translator (1)` is named after."""
    for lesson in syllabus.LESSONS:
        if stem == lesson.name or lesson.stem in stem:
            return lesson.stem
    return None


def take(notebook: NotebookNode, work: NotebookNode) -> list[str]:
    """Put the answers of `work`, and the code cells that its learner added, into the course's own `notebook`.

    An exercise's answer is all of its answer cells, in their order: a cell that was split or copied counts whole, so
    the last one that defines the function decides. Of those below the check, none counts, unless there is none above.
    Without metadata an answer is found by its cell's id, or by the name that it defines. An added cell follows the
    cell that it followed in `work`. Nothing else is taken: checks, and what surrounds them, may have been changed.

    Returns what of `work` is not used, in words.
    """
    answers, notes = _answers(notebook, work)
    ids, by_source = {cell.id for cell in notebook.cells}, {_plain(cell.source): cell.id for cell in notebook.cells}
    pieces = {id(cell): name for name, cells in answers.items() for cell in cells}
    begun: set[str] = set()
    changed = []
    place = next((i + 1 for i, cell in enumerate(notebook.cells) if role(cell) == "setup"), 0)
    for number, cell in enumerate(work.cells):
        name = pieces.get(id(cell))
        own = name or (cell.id if cell.id in ids else by_source.get(_plain(cell.source)))
        if _is_answer(cell) and name is None:
            continue  # `_answers` has said why it is not used
        if own is not None and own not in begun:
            place = next(i for i, other in enumerate(notebook.cells) if other.id == own) + 1
            if name is not None:
                notebook.cells[place - 1].source = cell.source
                begun.add(name)
            elif cell.cell_type == "code" and _plain(cell.source) != _plain(notebook.cells[place - 1].source):
                changed.append(cell)
        elif cell.cell_type == "code" and role(cell) not in _OF_THE_COURSE:
            notebook.cells.insert(place, nbformat.v4.new_code_cell(cell.source, id=f"added-{number}"))
            place += 1
    return notes + _changes(notebook, work, changed)


def label(cell: NotebookNode) -> str:
    """What a learner recognises a cell by."""
    if _is_answer(cell):
        return f"the answer cell of {exercise_name(cell)}"
    first = next((line.strip() for line in cell.source.splitlines() if line.strip()), "")
    return "the set-up cell" if role(cell) == "setup" else f"the cell `{first[:40]}{'…' if len(first) > 40 else ''}`"


def _answers(notebook: NotebookNode, work: NotebookNode) -> tuple[dict[str, list[NotebookNode]], list[str]]:
    """The cells that answer each exercise, and a sentence about each answer cell that is not used."""
    answers, notes = {}, []
    names = [exercise_name(cell) for cell in notebook.cells if _is_answer(cell)]
    for cell in work.cells:
        if _is_answer(cell) and exercise_name(cell) not in names:
            notes.append(f"this version of the lesson has no exercise {exercise_name(cell)}: its answer was not used")
    for name in names:
        check = next((i for i, cell in enumerate(work.cells) if _is_check(cell, name)), len(work.cells))
        mine = [(i, cell) for i, cell in enumerate(work.cells) if _is_answer(cell, name)]
        texts = [cell for _, cell in mine if cell.cell_type != "code"]
        code = [(i, cell) for i, cell in mine if cell.cell_type == "code"]
        above, below = ([cell for i, cell in code if (i < check) == is_above] for is_above in (True, False))
        found = above or below or _by_definition(work.cells[:check], name) or _by_definition(work.cells, name)
        if found:
            answers[name] = found
        if texts:
            notes.append(f"the answer cell of {name} is a text cell (Markdown): make it a code cell again")
        if above and below:
            notes.append(f"a copy of the answer cell of {name} stands below its check: it was not used")
        if not mine and not found:
            notes.append(f"there is no answer cell of {name}: it may have been deleted")
    return answers, notes


def _is_answer(cell: NotebookNode, name: str | None = None) -> bool:
    if name is None:
        return role(cell) == "answer"
    return (role(cell) == "answer" and exercise_name(cell) == name) or cell.id == name


def _is_check(cell: NotebookNode, name: str) -> bool:
    return cell.cell_type == "code" and (
        (role(cell) == "check" and exercise_name(cell) == name) or f'lesson.check("{name}")' in cell.source
    )


def _by_definition(cells: list[NotebookNode], name: str) -> list[NotebookNode]:
    """The last cell that defines `name`, as a list."""
    defines = re.compile(rf"^((async )?def|class) {name}\b|^{name} *=[^=]", re.MULTILINE)
    return [cell for cell in cells if cell.cell_type == "code" and defines.search(cell.source)][-1:]


def _changes(notebook: NotebookNode, work: NotebookNode, changed: list[NotebookNode]) -> list[str]:
    """What is said about the cells of the course that are different in `work`."""
    versions = [_course(nb).get("digest") for nb in (notebook, work)]
    if versions[0] != versions[1] and versions[1] is not None:
        first = ["this copy is of another version of the lesson; the run used the course's present one"]
        changed = [cell for cell in changed if role(cell) == "setup"]
    else:
        first = []
    named = [label(cell) for cell in changed[:3]] + ([f"{len(changed) - 3} more"] if len(changed) > 3 else [])
    if named:
        first.append(f"changed, but not used, since it belongs to the course: {', '.join(named)}")
    return first


def _plain(source: str) -> str:
    """The source without what editors change: line ends, and blanks at the ends of lines and of the cell."""
    return "\n".join(line.rstrip() for line in source.splitlines()).strip()
