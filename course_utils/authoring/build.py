"""`python -m course_utils build`: stamp a notebook, run it solved, store its outputs in the unsolved notebook.

`build --check` runs nothing: it says what is stale or breaks the rules.
"""

import copy
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from course_utils import syllabus
from course_utils.authoring import assemble, reading_time, readme, stamps
from course_utils.authoring.assemble import role
from course_utils.exercises.exercise import exercises_of

_FIGURES = syllabus.ROOT / "course_utils" / "figures"
_NO_OUTPUT = ("check", "summary")
_UNSTABLE = re.compile(r"\b0x[0-9a-f]{6,}\b|/(?:home|root|tmp|work|Users)/\w")


def main(names: list[str], check: bool = False) -> int:
    """Build (or check) the named lessons, all that exist by default. Returns the exit code."""
    lessons = [syllabus.find(name) for name in names] or [x for x in syllabus.LESSONS if x.ready]
    missing = [lesson.stem for lesson in lessons if not lesson.notebook.exists()]
    if missing:
        print(f"there is no notebook for: {', '.join(missing)}")
        return 1
    if not check:
        for lesson in lessons:
            build(lesson)
        readme.stamp()
    found = [f"{x.stem}: {problem}" for x in lessons for problem in problems(x)] + readme.problems()
    print("\n".join(found) or f"{len(lessons)} notebooks are up to date")
    return 1 if found else 0


def build(lesson: syllabus.LessonInfo) -> None:
    """Stamp the lesson's notebook, run it with the reference answers, and store the outputs."""
    notebook = assemble.read(lesson.notebook)
    stamps.stamp(notebook, lesson)
    notebook = _formatted(notebook, lesson.notebook)
    solved = run(_solved(notebook, lesson), lesson)
    _copy_outputs(solved, notebook)
    notebook.metadata["course"]["digest"] = digest(notebook, lesson)
    assemble.write(notebook, lesson.notebook)
    print(f"built {lesson.stem}")


def _formatted(notebook: NotebookNode, path: Path) -> NotebookNode:
    """The notebook as ruff writes it, with the settings of its folder."""
    command = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(path), "-"]
    text = nbformat.writes(notebook, version=nbformat.NO_CONVERT)
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=True)
    return assemble.parse(done.stdout)


def run(notebook: NotebookNode, lesson: syllabus.LessonInfo) -> NotebookNode:
    """Run every cell, as a test does: a check or a claim that fails ends the build with its message."""
    os.environ["COURSE_STRICT"] = "1"
    client = NotebookClient(notebook, timeout=900, kernel_name="python3", resources=_folder(lesson.notebook.parent))
    try:
        return client.execute()
    except CellExecutionError as error:
        raise SystemExit(f"{lesson.stem} does not run: {error}") from None


def problems(lesson: syllabus.LessonInfo) -> list[str]:
    """What is wrong with the lesson's notebook, in words; nothing is run."""
    notebook = assemble.read(lesson.notebook)
    stamped = copy.deepcopy(notebook)
    stamps.stamp(stamped, lesson)
    found = []
    if stamped != notebook:
        changed = [a.id for a, b in zip(stamped.cells, notebook.cells, strict=True) if a != b]
        found.append(f"stale cells: {', '.join(changed) or 'the metadata'}; run `build {lesson.name}`")
    if notebook.metadata.get("course", {}).get("digest") != digest(notebook, lesson):
        found.append(f"the outputs are of an older version; run `build {lesson.name}`")
    minutes = reading_time.minutes(notebook, exercises_of(lesson.name))
    if minutes != lesson.minutes:
        found.append(f"takes {minutes} minutes (see reading_time.py), but syllabus.py says {lesson.minutes}")
    for cell in assemble.code_cells(notebook):
        found += [f"cell {cell.id}: {problem}" for problem in _cell_problems(cell)]
    return found + _order_problems(notebook) + _format_problems(notebook, lesson.notebook)


def digest(notebook: NotebookNode, lesson: syllabus.LessonInfo) -> str:
    """A short hash of what made the pictures, which no test compares: cells, answers, and the figures they name."""
    sources = [cell.source for cell in assemble.code_cells(_solved(notebook, lesson))]
    sources += _figure_sources({"style", "diagrams", "curves", lesson.name}, sources)
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()[:16]


def _figure_sources(names: set[str], sources: list[str]) -> list[str]:
    """The sources of these figure modules, of those that `sources` import, and of those that they import."""
    found: dict[str, str] = {}
    names = names.union(*map(_figure_imports, sources))
    while names:
        paths = {name: _FIGURES / f"{name}.py" for name in names}
        found |= {name: path.read_text(encoding="utf-8") if path.exists() else "" for name, path in paths.items()}
        names = set().union(*(_figure_imports(found[name]) for name in names)) - found.keys()
    return [found[name] for name in sorted(found)]


def _figure_imports(source: str) -> set[str]:
    """The modules X in `from course_utils.figures import X` and `from course_utils.figures.X import ...`."""
    lists = re.findall(r"course_utils\.figures(?:\.(\w+)| import ([\w, ]+))", source)
    return {word for dotted, names in lists for word in re.findall(r"\w+", dotted or re.sub(r" as \w+", "", names))}


def _solved(notebook: NotebookNode, lesson: syllabus.LessonInfo) -> NotebookNode:
    solved = copy.deepcopy(notebook)
    assemble.put_answers(solved, assemble.reference_answers(lesson.name))
    return solved


def _folder(path: Path) -> dict[str, dict[str, str]]:
    return {"metadata": {"path": str(path)}}


def _copy_outputs(solved: NotebookNode, notebook: NotebookNode) -> None:
    pairs = zip(assemble.code_cells(solved), assemble.code_cells(notebook), strict=True)
    for count, (done, cell) in enumerate(pairs, start=1):
        cell.metadata.pop("execution", None)  # times of day
        keep = role(cell) not in _NO_OUTPUT
        cell.execution_count = count if keep else None
        cell.outputs = done.outputs if keep else []
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count


def _cell_problems(cell: NotebookNode) -> list[str]:
    found = []
    if role(cell) in _NO_OUTPUT:
        return ["has stored outputs"] if cell.outputs or cell.execution_count is not None else []
    if cell.execution_count is None:
        found.append("was never run")
    if stamps.is_random(cell.id):
        found.append("has no readable id")
    if len(cell.source.splitlines()) > 40:
        found.append("is longer than a screen (40 lines)")
    for output in cell.outputs:
        data = output.get("data", {})
        text = output.get("text", "") + "".join(v for k, v in data.items() if k.startswith("text/"))
        if output.output_type == "error":
            found.append("ends in an error")
        if output.get("name") == "stderr":
            found.append("writes to stderr")
        if "image/svg+xml" in data:
            found.append("shows an SVG: nbval compares its text; use figures.style.show")
        unstable = _UNSTABLE.search(text)
        if unstable and stamps.IGNORE_OUTPUT not in cell.metadata.get("tags", []):
            found.append(f"prints an address or a path: {unstable[0]}")
    return found


def _order_problems(notebook: NotebookNode) -> list[str]:
    """Title first, then set-up; each answer followed by its check; the summary at the end."""
    cells = notebook.cells
    found = [] if [role(c) for c in cells[:2]] == ["title", "setup"] else ["begins without title and set-up cells"]
    for cell, following in zip(cells, [*cells[1:], None], strict=True):
        if role(cell) == "answer":
            wanted = ("check", assemble.exercise_name(cell))
            if following is None or (role(following), assemble.exercise_name(following)) != wanted:
                found.append(f"answer {cell.id} is not followed by its check")
    if sum(role(c) == "summary" for c in cells) != 1:
        found.append("has not exactly one summary cell")
    return found


def _format_problems(notebook: NotebookNode, path: Path) -> list[str]:
    found = []
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        found.append(f"is not valid: {error.message}")
    for command in (["format", "--check", "--quiet"], ["check", "--quiet", "--output-format=concise"]):
        done = subprocess.run([sys.executable, "-m", "ruff", *command, str(path)], capture_output=True, text=True)
        if done.returncode:
            found.append(f"ruff {command[0]}: {done.stdout.strip() or done.stderr.strip() or 'not formatted'}")
    return found
