"""Making notebooks: reading, stamping, the time that they take, and the rules of `build`."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from course_utils import syllabus
from course_utils.authoring import assemble, build, reading_time, readme, stamps
from course_utils.exercises.exercise import exercises_of

LESSON = syllabus.find("start_here")
RIGHT = "def softmax(scores):\n    return torch.softmax(scores, dim=-1)"


@pytest.fixture
def notebook() -> nbformat.NotebookNode:
    return assemble.read(LESSON.notebook)


def cell(notebook: nbformat.NotebookNode, cell_id: str) -> nbformat.NotebookNode:
    return next(c for c in notebook.cells if c.id == cell_id)


# ---- reading -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"[]", b"<html>login</html>", b'{"cells": [', b"\xff\xfe{\x00", b"[" * 100_000])
def test_what_is_not_a_notebook_gets_a_clear_error(tmp_path: Path, data: bytes):
    path = tmp_path / "mine.ipynb"
    path.write_bytes(data)
    with pytest.raises(assemble.UnreadableNotebook, match=r"mine\.ipynb is not a readable notebook"):
        assemble.read(path)


def test_byte_order_mark_and_missing_ids_are_read(tmp_path: Path, notebook):
    text = nbformat.writes(notebook)
    data = json.loads(text)
    for c in data["cells"]:
        del c["id"]
    data["nbformat_minor"] = 0
    path = tmp_path / "mine.ipynb"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(data).encode())
    read = assemble.read(path)
    assert len({c.id for c in read.cells}) == len(notebook.cells)


def test_written_notebooks_are_read_back_the_same(tmp_path: Path, notebook):
    assemble.write(notebook, tmp_path / "copy.ipynb")
    assert (tmp_path / "copy.ipynb").read_bytes() == LESSON.notebook.read_bytes()


# ---- the time that a lesson takes --------------------------------------------------------------------------------


def test_minutes_are_counted_from_text_code_pictures_and_exercises():
    course = {"metadata": {"course": {"role": "answer", "exercise": "softmax"}}}
    notebook = nbformat.v4.new_notebook(
        cells=[
            new_markdown_cell("word " * 1500),  # 10 minutes
            new_code_cell("x = 1\n\n" * 100, outputs=[new_output("display_data", {"image/png": ""})]),  # 6.7 and 1
            new_code_cell("not read\n" * 1000, **course),
        ]
    )
    exercises = exercises_of("start_here")
    assert sum(exercise.minutes for exercise in exercises.values()) == 5
    assert reading_time.minutes(notebook, exercises) == 30  # 22.7, rounded up
    assert reading_time.minutes(nbformat.v4.new_notebook(), {}) == 0


# ---- stamping ----------------------------------------------------------------------------------------------


def test_stub_is_signature_and_docstring():
    source = assemble.reference_answers("start_here")["softmax"]
    stub = stamps.stub(stamps.exercises_of("start_here")["softmax"])
    head, _, end = stub.rpartition("\n")
    assert source.startswith(head + "\n") and end == "    raise NotImplementedError"
    assert "largest" in source.removeprefix(head) and head.endswith('"""')


def test_stamping_twice_changes_nothing(notebook):
    once = copy.deepcopy(notebook)
    stamps.stamp(once, LESSON)
    assert once == notebook


def test_random_ids_become_readable_and_unique(notebook):
    for c in notebook.cells[3:6]:
        c.id = "6f1e-2a7b-90cd" + c.id[:3].encode().hex()
    stamps.stamp(notebook, LESSON)
    ids = [c.id for c in notebook.cells]
    assert len(set(ids)) == len(ids) and not any(map(stamps.is_random, ids))


def undocumented():
    return 1


def test_a_reference_without_docstring_is_refused():
    exercise: Any = SimpleNamespace(function=undocumented, name="undocumented")
    with pytest.raises(ValueError, match="needs a docstring"):
        stamps.stub(exercise)


@pytest.mark.parametrize(
    ("dotted", "begins"), [("multi_head.split_heads", "def split_"), ("training.train", "def train(")]
)
def test_a_source_cell_shows_a_lesson_s_code_or_the_training_loop(notebook, dotted, begins):
    notebook.cells[2] = new_code_cell(metadata={"course": {"role": "source", "source": dotted}})
    stamps.stamp(notebook, LESSON)
    assert notebook.cells[2].source.startswith(begins) and notebook.cells[2].id == dotted.split(".")[1]


def test_colab_link_and_install_line_use_the_one_address(notebook):
    assert stamps.repository_url() in cell(notebook, "setup").source
    assert "colab.research.google.com/github/" in cell(notebook, "title").source


# ---- the rules of build --------------------------------------------------------------------------------------


def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any) -> list[str]:
    """What `build --check` finds after `change` was done to lesson 00's notebook."""
    notebook = assemble.read(LESSON.notebook)
    change(notebook)
    path = tmp_path / LESSON.notebook.name
    assemble.write(notebook, path)
    settings = (LESSON.notebook.parent / "ruff.toml").read_text(encoding="utf-8")
    (tmp_path / "ruff.toml").write_text(settings.replace('"../', f'"{syllabus.ROOT.as_posix()}/'), encoding="utf-8")
    monkeypatch.setattr(syllabus.LessonInfo, "notebook", path)
    return build.problems(LESSON)


def edit(cell_id: str, **changes: Any) -> Any:
    return lambda notebook: cell(notebook, cell_id).update(changes)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (edit("title", source="# mine"), "stale cells: title"),
        (edit("recap", source="word " * 9000), "takes 80 minutes (see reading_time.py), but syllabus.py says 20"),
        (edit("softmax", source=RIGHT), "stale cells: softmax"),
        (edit("by-hand", source="print(1)"), "outputs are of an older version"),
        (edit("by-hand", source="x=1"), "ruff format: "),
        (edit("by-hand", source="def f(x=[]):\n    return x"), "ruff check: "),
        (edit("by-hand", execution_count=None, outputs=[]), "cell by-hand: was never run"),
        (edit("by-hand", outputs=[new_output("error", ename="E", evalue="", traceback=[])]), "ends in an error"),
        (edit("by-hand", outputs=[new_output("stream", name="stderr", text="w")]), "writes to stderr"),
        (edit("by-hand", outputs=[new_output("stream", text="<F at 0x7f1234567890>")]), "prints an address"),
        (edit("by-hand", outputs=[new_output("display_data", {"image/svg+xml": "<svg/>"})]), "shows an SVG"),
        (edit("softmax-check", outputs=[new_output("stream", text="✓")]), "cell softmax-check: has stored outputs"),
        (lambda notebook: notebook.cells.remove(cell(notebook, "softmax-check")), "not followed by its check"),
        (lambda notebook: notebook.cells.pop(0), "begins without title"),
        (lambda notebook: notebook.cells.remove(cell(notebook, "summary")), "not exactly one summary"),
    ],
)
def test_build_check_finds(tmp_path, monkeypatch, change, found):
    problems = broken(tmp_path, monkeypatch, change)
    assert any(found in problem for problem in problems), problems


def test_build_check_finds_nothing_in_what_was_built(tmp_path, monkeypatch):
    assert broken(tmp_path, monkeypatch, lambda notebook: None) == []


def test_readme_map_lists_every_lesson_and_marks_those_to_come():
    table = readme.lesson_map()
    for lesson in syllabus.LESSONS:
        assert lesson.title in table
    assert table.count("(to come)") == sum(not lesson.ready for lesson in syllabus.LESSONS)
    assert readme.problems() == []


# ---- the plug-in with the reference answers -------------------------------------------------------------------


def test_stored_outputs_are_compared_with_the_reference_answers(tmp_path, monkeypatch):
    """A notebook whose stored text is wrong must fail: otherwise the course's own tests would see nothing."""
    notebook = assemble.read(LESSON.notebook)
    cell(notebook, "by-hand").outputs[0].text = "powers 0"
    path = tmp_path / LESSON.notebook.name
    assemble.write(notebook, path)
    options = ["-p", "course_utils.grading.nbval_plugin", "-p", "no:cacheprovider", "-p", "no:xdist", "--color=no"]
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", *options, "--answers", "reference"]
    done = subprocess.run([*command, path.name], cwd=tmp_path, capture_output=True, text=True)
    assert "1 failed" in done.stdout and "::by-hand" in done.stdout


# ------------------------------------------------------------------ what the digest covers


def test_the_digest_follows_the_figures_that_a_lesson_imports(tmp_path, monkeypatch):
    texts = {
        "style": "",
        "maps": "from course_utils.figures.style import show",
        "deep": "from course_utils.figures import maps, style",
        "other": "",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(f"# {name}\n{text}")
    monkeypatch.setattr(build, "_FIGURES", tmp_path)
    cell = "from course_utils.figures import deep as figures\nfrom course_utils.lessons.other import other"
    found = [text.split()[1] for text in build._figure_sources({"style"}, [cell])]
    assert found == ["deep", "maps", "style"]
