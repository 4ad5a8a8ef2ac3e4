"""Making notebooks: reading, putting answers in, stamping, the rules of `build`, and the nbval plug-in."""

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
from course_utils.authoring import assemble, build, readme, stamps

LESSON = syllabus.find("start_here")
RIGHT = "def softmax(scores):\n    return torch.softmax(scores, dim=-1)"
WRONG = "def softmax(scores):\n    return scores"


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


# ---- putting a learner's work in -----------------------------------------------------------------------------


def put(notebook, work) -> nbformat.NotebookNode:
    assemble.put_learners_work(notebook, work)
    return notebook


def test_answers_are_taken_and_nothing_else(notebook):
    work = assemble.read(LESSON.notebook)
    cell(work, "softmax").source = RIGHT
    cell(work, "softmax-check").source = "print('passed')"
    cell(work, "setup").source = "lesson = None"
    put(notebook, work)
    original = assemble.read(LESSON.notebook)
    assert cell(notebook, "softmax").source == RIGHT
    assert [c.source for c in notebook.cells if c.id != "softmax"] == [
        c.source for c in original.cells if c.id != "softmax"
    ]


def test_added_cells_keep_their_place(notebook):
    work = assemble.read(LESSON.notebook)
    place = work.cells.index(cell(work, "softmax"))
    work.cells[place:place] = [new_code_cell("helper = 1"), new_markdown_cell("a note"), new_code_cell("helper += 1")]
    sources = [c.source for c in put(notebook, work).cells]
    at = sources.index("helper = 1")
    assert sources[at + 1] == "helper += 1" and sources[at + 2].startswith("def softmax")
    assert "a note" not in sources


def test_answers_without_metadata_and_ids_are_found_by_their_def_line(notebook):
    work = assemble.read(LESSON.notebook)
    cell(work, "softmax").source = RIGHT
    for number, c in enumerate(work.cells):
        c.metadata, c.id = {}, f"lost-{number}"
    put(notebook, work)
    assert cell(notebook, "softmax").source == RIGHT
    assert len(notebook.cells) == len(work.cells)  # nothing counts as added


def test_added_cells_keep_their_place_without_ids(notebook):
    work = assemble.read(LESSON.notebook)
    place = work.cells.index(cell(work, "softmax"))
    work.cells.insert(place, new_code_cell("helper = torch.exp"))
    for number, c in enumerate(work.cells):
        c.metadata, c.id, c.source = {}, f"lost-{number}", c.source.replace("\n", "\r\n") + "\n"
    sources = [c.source for c in put(notebook, work).cells]
    at = next(i for i, source in enumerate(sources) if source.startswith("helper"))
    assert sources[at + 1].startswith("def softmax") and len(sources) == len(work.cells)


@pytest.mark.parametrize("source", ["softmax = nn.Softmax(-1)", "class softmax:\n    pass"])
def test_answers_that_are_no_def_are_found_too(notebook, source):
    work = assemble.read(LESSON.notebook)
    cell(work, "softmax").source = source
    for number, c in enumerate(work.cells):
        c.metadata, c.id = {}, f"lost-{number}"
    assert cell(put(notebook, work), "softmax").source == source


@pytest.mark.parametrize("course", ["text", None, ["list"]])
def test_odd_metadata_is_refused(tmp_path: Path, notebook, course):
    notebook.cells[3].metadata["course"] = course
    assemble.write(notebook, tmp_path / "odd.ipynb")
    with pytest.raises(assemble.UnreadableNotebook):
        assemble.read(tmp_path / "odd.ipynb")


def test_of_copied_answers_the_first_counts(notebook):
    work = assemble.read(LESSON.notebook)
    cell(work, "softmax").source = RIGHT
    copy = nbformat.from_dict(cell(work, "softmax"))
    copy.source = WRONG
    work.cells.append(copy)
    assert cell(put(notebook, work), "softmax").source == RIGHT


def test_a_deleted_answer_leaves_the_stub(notebook):
    work = assemble.read(LESSON.notebook)
    work.cells.remove(cell(work, "softmax"))
    assert "raise NotImplementedError" in cell(put(notebook, work), "softmax").source


# ---- stamping ----------------------------------------------------------------------------------------------


def test_stub_is_signature_and_docstring():
    source = assemble.reference_answers("start_here")["softmax"]
    stub = stamps.stub(stamps.exercises_of("start_here")["softmax"])
    head, _, end = stub.rpartition("\n")
    assert source.startswith(head + "\n") and end == "    raise NotImplementedError"
    assert "largest" in source.removeprefix(head) and head.endswith('"""')


def test_stamping_twice_changes_nothing(notebook):
    once = nbformat.from_dict(notebook)
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
    with pytest.raises(ValueError, match="needs a docstring"):
        stamps.stub(SimpleNamespace(function=undocumented, name="undocumented"))


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
    monkeypatch.setattr(syllabus.LessonInfo, "notebook", path)
    return build.problems(LESSON)


def edit(cell_id: str, **changes: Any) -> Any:
    return lambda notebook: cell(notebook, cell_id).update(changes)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (edit("title", source="# mine"), "stale cells: title"),
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


# ---- the plug-in, for real -----------------------------------------------------------------------------------


def grade(tmp_path: Path, change: Any) -> tuple[dict[str, Any], str]:
    """Run lesson 00 with a changed copy of it as the learner's notebook; the report, and what pytest printed."""
    work, trusted = assemble.read(LESSON.notebook), assemble.read(LESSON.notebook)
    assemble.exercises_only(trusted)  # the rest of the lesson would only take time
    skipped = {c.id for c in work.cells} - {c.id for c in trusted.cells}
    path = tmp_path / "course" / LESSON.notebook.name
    path.parent.mkdir()
    assemble.write(trusted, path)
    change(work)
    work.cells = [c for c in work.cells if c.id not in skipped]
    assemble.write(work, tmp_path / "mine.ipynb")
    report = tmp_path / "report.json"
    options = ["-p", "course_utils.authoring.nbval_plugin", "-p", "no:cacheprovider", "-p", "no:xdist", "--color=no"]
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "--nbval-cell-timeout=20", *options]
    command += ["--answers", str(tmp_path / "mine.ipynb"), "--report", str(report), str(path)]
    done = subprocess.run(command, cwd=syllabus.ROOT, capture_output=True, text=True)
    return json.loads(report.read_text(encoding="utf-8")), done.stdout


def test_right_answer_scores(tmp_path):
    report, text = grade(tmp_path, edit("softmax", source=RIGHT))
    assert report["points"] == report["total"] == 1 and "score: 1 of 1 points" in text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import os\nos._exit(0)", "the kernel died"),
        (
            WRONG + "\nimport IPython.core.interactiveshell as m\n"
            "m.InteractiveShell.showtraceback = lambda *a, **k: None",
            "(the notebook hid this error)",
        ),
        ("# NBVAL_SKIP\n" + WRONG, "✗ softmax: 13 of 14 checks failed"),
    ],
)
def test_wrong_answers_do_not_score(tmp_path, source, message):
    report, text = grade(tmp_path, edit("softmax", source=source))
    assert report["points"] == 0 and report["total"] == 1
    assert message in report["exercises"][0]["message"] + text


def test_tampered_checks_do_not_score(tmp_path):
    def tamper(work: nbformat.NotebookNode) -> None:
        cell(work, "softmax-check").source = "pass"
        cell(work, "setup").source = "class lesson:\n    check = print"

    assert grade(tmp_path, tamper)[0]["points"] == 0


def test_a_replaced_check_does_not_score(tmp_path):
    def cheat(work: nbformat.NotebookNode) -> None:
        cell(work, "softmax").source = WRONG
        work.cells.insert(2, new_code_cell("lesson.check = lambda name: None"))

    assert grade(tmp_path, cheat)[0]["points"] == 0


def test_an_unreadable_answers_file_is_a_clear_usage_error(tmp_path):
    (tmp_path / "mine.ipynb").write_text("<html>")
    options = ["-p", "course_utils.authoring.nbval_plugin", "--nbval", "--answers", "mine.ipynb"]
    command = [sys.executable, "-m", "pytest", *options, str(LESSON.notebook)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 4 and "mine.ipynb is not a readable notebook" in done.stderr


def test_stored_outputs_are_compared_with_the_reference_answers(tmp_path, monkeypatch):
    """A notebook whose stored text is wrong must fail: otherwise the course's own tests would see nothing."""
    notebook = assemble.read(LESSON.notebook)
    cell(notebook, "by-hand").outputs[0].text = "powers 0"
    path = tmp_path / LESSON.notebook.name
    assemble.write(notebook, path)
    options = ["-p", "course_utils.authoring.nbval_plugin", "-p", "no:cacheprovider", "-p", "no:xdist", "--color=no"]
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
