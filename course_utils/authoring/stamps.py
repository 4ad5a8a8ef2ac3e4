"""The cells that every notebook has in the same words. `build` writes them, so nobody copies them by hand."""

import ast
import importlib
import inspect
import re
import tomllib
from typing import Any

from nbformat import NotebookNode

from course_utils import syllabus
from course_utils.authoring.assemble import exercise_name, role
from course_utils.exercises.exercise import Exercise, exercises_of

IGNORE_OUTPUT = "nbval-ignore-output"
_SETUP = """\
import sys

# Colab has PyTorch and matplotlib already; this adds the course.
if "google.colab" in sys.modules:
    address = "git+{url}"
    %pip install --quiet "course_utils @ {{address}}" nbval
from course_utils import start

lesson = start("{name}", globals())
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn"""
_TRITON = """

from course_utils.triton_or_stub import tl, triton"""
_TITLE = """\
# {number:02d} · {title}

**{sentence}**

About {minutes} minutes. You should know: {needs}. · [Open in Colab]({colab})"""


def repository_url() -> str:
    """Where the course is published: the one address in pyproject.toml."""
    settings = tomllib.loads((syllabus.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return settings["project"]["urls"]["Repository"]


def stamp(notebook: NotebookNode, lesson: syllabus.LessonInfo) -> None:
    """Give every cell with a role its source, id, tags and metadata, and every other cell a readable id."""
    notebook.metadata = {
        "course": {**notebook.metadata.get("course", {}), "lesson": lesson.name},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    exercises = exercises_of(lesson.name)
    for cell in notebook.cells:
        _stamp_cell(cell, lesson, exercises)
    _name_cells(notebook)


def stub(exercise: Exercise) -> str:
    """What a learner starts from: the reference's signature and docstring, and nothing else."""
    source = inspect.getsource(exercise.function)
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    if ast.get_docstring(node) is None:
        raise ValueError(f"the reference of {exercise.name!r} needs a docstring: it is what a learner reads")
    return "\n".join([*source.split("\n")[: node.body[0].end_lineno], "    raise NotImplementedError"])


def source_of(dotted: str) -> str:
    """The source of "multi_head.MultiHeadAttention", a name in `course_utils/lessons`, or of "training.train"."""
    module, _, name = dotted.partition(".")
    package = "course_utils" if module == "training" else "course_utils.lessons"
    value = getattr(importlib.import_module(f"{package}.{module}"), name)
    return inspect.getsource(getattr(value, "fn", value)).rstrip("\n")  # `fn`: the function of a Triton kernel


def _stamp_cell(cell: NotebookNode, lesson: syllabus.LessonInfo, exercises: dict[str, Exercise]) -> None:
    name = exercise_name(cell)
    match role(cell):
        case "title":
            cell.id, cell.source = "title", _title(lesson)
        case "setup":
            kernels = any(exercise.outer for exercise in exercises.values())
            cell.id = "setup"
            cell.source = _SETUP.format(name=lesson.name, url=repository_url()) + _TRITON * kernels
        case "answer":
            cell.id, cell.source = name, stub(exercises[name])
            cell.metadata["nbgrader"] = _nbgrader(name, solution=True)
        case "check":
            cell.id, cell.source = f"{name}-check", f'lesson.check("{name}")'
            points = exercises[name].points
            cell.metadata["nbgrader"] = _nbgrader(cell.id, grade=True, locked=True, points=points)
            _ignore_output(cell)
        case "source":
            dotted = cell.metadata["course"]["source"]
            cell.id, cell.source = dotted.partition(".")[2], source_of(dotted)
        case "summary":
            cell.id, cell.source = "summary", "lesson.summary()"
            _ignore_output(cell)


def _title(lesson: syllabus.LessonInfo) -> str:
    colab = repository_url().replace("https://github.com", "https://colab.research.google.com/github")
    return _TITLE.format(
        number=lesson.number,
        title=lesson.title,
        sentence=lesson.sentence,
        minutes=lesson.minutes,
        needs=lesson.needs,
        colab=f"{colab}/blob/main/notebooks/{lesson.stem}.ipynb",
    )


def _nbgrader(grade_id: str, **given: Any) -> dict[str, Any]:
    """nbgrader's metadata, schema 3; it allows no other keys."""
    return {
        "grade": False,
        "grade_id": grade_id,
        "locked": False,
        "schema_version": 3,
        "solution": False,
        "task": False,
        **given,
    }


def _ignore_output(cell: NotebookNode) -> None:
    cell.outputs, cell.execution_count = [], None
    cell.metadata["tags"] = sorted({*cell.metadata.get("tags", []), IGNORE_OUTPUT})


def _name_cells(notebook: NotebookNode) -> None:
    """Replace the random ids that editors give by the section's heading and a number."""
    section, taken = "start", {cell.id for cell in notebook.cells}
    for cell in notebook.cells:
        headings = re.findall(r"^#+ (.*)", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else []
        if cell.source.startswith("#") and headings:
            section = _slug(headings[0])
        if is_random(cell.id):
            candidates = (f"{section}-{n}" for n in range(1, 1000))
            cell.id = next(c for c in candidates if c not in taken)
            taken.add(cell.id)
        section = _slug(headings[-1]) if headings else section


def _slug(heading: str) -> str:
    """The first words of a heading, as part of an id: "what-will-you-build"."""
    words = re.findall(r"[a-z0-9]+", heading.lower())
    return "-".join(words[:6]) or "section"


def is_random(cell_id: str) -> bool:
    """Whether an editor made this id up: hexadecimal digits and dashes with a digit, or `cell-3`."""
    return bool(re.fullmatch(r"(?=.*\d)[0-9a-f-]{8,}|cell-\d+", cell_id))
