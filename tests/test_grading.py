"""Grading a learner's notebook: which lesson it is, which of its cells count, what the run survives, what is said."""

import copy
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell

from course_utils import __main__ as cli
from course_utils import syllabus
from course_utils.authoring import assemble
from course_utils.grading import grade, submission

LESSON = syllabus.find("start_here")
LAYER = syllabus.find("attention_layer")
RIGHT = "def softmax(scores):\n    return torch.softmax(scores, dim=-1)"
WRONG = "def softmax(scores):\n    return scores"
Change = Callable[[nbformat.NotebookNode], Any]


@pytest.fixture
def notebook() -> nbformat.NotebookNode:
    return assemble.read(LESSON.notebook)


@pytest.fixture
def work() -> nbformat.NotebookNode:
    """A learner's copy of the same lesson."""
    return assemble.read(LESSON.notebook)


def cell(notebook: nbformat.NotebookNode, cell_id: str) -> nbformat.NotebookNode:
    return next(c for c in notebook.cells if c.id == cell_id)


def place(notebook: nbformat.NotebookNode, cell_id: str) -> int:
    return notebook.cells.index(cell(notebook, cell_id))


def edit(cell_id: str, **changes: Any) -> Change:
    return lambda notebook: cell(notebook, cell_id).update(changes)


def add(before: str, *sources: str) -> Change:
    """New code cells above the cell `before`."""

    def change(notebook: nbformat.NotebookNode) -> None:
        at = place(notebook, before)
        notebook.cells[at:at] = [new_code_cell(source) for source in sources]

    return change


def copy_of_answer(source: str, below: str) -> Change:
    """A copied (or split) answer cell: JupyterLab gives it the same metadata."""

    def change(notebook: nbformat.NotebookNode) -> None:
        piece = copy.deepcopy(cell(notebook, "softmax"))
        piece.source, piece.id = source, "copied"
        notebook.cells.insert(place(notebook, below) + 1, piece)

    return change


def without_metadata(notebook: nbformat.NotebookNode) -> None:
    for number, c in enumerate(notebook.cells):
        c.metadata, c.id = {}, f"lost-{number}"


# ---- which lesson --------------------------------------------------------------------------------------------


def empty(course: Any = None, source: str = "") -> nbformat.NotebookNode:
    metadata = {} if course is None else {"course": course}
    return nbformat.v4.new_notebook(cells=[new_code_cell(source)], metadata=metadata)


OPENS = 'from course_utils import start\n\nlesson = start("masking", globals())'


@pytest.mark.parametrize(
    ("file", "notebook", "lesson"),
    [
        ("3.ipynb", empty({"lesson": "start_here"}), "start_here"),  # the metadata count, not the name
        ("01_rnn_translator.ipynb", empty({"lesson": "start_here"}), "start_here"),
        ("3.ipynb", empty(source=OPENS), "masking"),
        ("06_multi_head.ipynb", empty(), "multi_head"),
        ("06_multi_head (1).ipynb", empty(), "multi_head"),
        ("Copy of 06_multi_head.ipynb", empty({"digest": "1"}), "multi_head"),
        ("06_multi_head.ipynb", empty({"lesson": None}), "multi_head"),
        ("06_multi_head.ipynb", empty(["lesson"]), "multi_head"),
    ],
)
def test_the_lesson_of_a_notebook(file, notebook, lesson):
    assert submission.lesson_of(notebook, file).name == lesson


@pytest.mark.parametrize(
    ("file", "notebook", "said"),
    [
        ("3.ipynb", empty(), "belongs to no lesson"),
        ("notes.ipynb", empty({"lesson": None}), "belongs to no lesson"),
        ("00_start_here.ipynb", empty({"lesson": "cooking"}), "'cooking', which is not in this version"),
        ("00_start_here.ipynb", empty({"lesson": 3}), "3, which is not in this version"),
        ("any.ipynb", empty({"lesson": "flash_triton"}), "'flash_triton', which is not in this version"),
    ],
)
def test_what_is_no_lesson_is_named(file, notebook, said):
    if syllabus.find("flash_triton").ready and "flash_triton" in said:
        pytest.skip("every lesson is here")
    with pytest.raises(ValueError, match=said):
        submission.lesson_of(notebook, file)


# ---- which cells ---------------------------------------------------------------------------------------------


def sources_after(notebook: nbformat.NotebookNode, work: nbformat.NotebookNode) -> list[str]:
    submission.take(notebook, work)
    return [c.source for c in notebook.cells]


def test_answers_are_taken_and_nothing_else(notebook, work):
    cell(work, "softmax").source = RIGHT
    cell(work, "softmax-check").source = "print('passed')"
    cell(work, "setup").source = "lesson = None"
    notes = submission.take(notebook, work)
    original = assemble.read(LESSON.notebook)
    assert cell(notebook, "softmax").source == RIGHT
    assert [c.source for c in notebook.cells if c.id != "softmax"] == [
        c.source for c in original.cells if c.id != "softmax"
    ]
    assert notes == [
        "changed, but not used, since it belongs to the course: the set-up cell, the cell `print('passed')`"
    ]


def test_an_unchanged_copy_gives_no_notes(notebook, work):
    assert submission.take(notebook, work) == []


def test_added_cells_keep_their_place(notebook, work):
    at = place(work, "softmax")
    work.cells[at:at] = [new_code_cell("helper = 1"), new_markdown_cell("a note"), new_code_cell("helper += 1")]
    sources = sources_after(notebook, work)
    at = sources.index("helper = 1")
    assert sources[at + 1] == "helper += 1" and sources[at + 2].startswith("def softmax")
    assert "a note" not in sources


def test_answers_without_metadata_and_ids_are_found_by_their_def_line(notebook, work):
    cell(work, "softmax").source = RIGHT
    without_metadata(work)
    sources_after(notebook, work)
    assert cell(notebook, "softmax").source == RIGHT
    assert len(notebook.cells) == len(work.cells)  # nothing counts as added


def test_added_cells_keep_their_place_without_ids(notebook, work):
    add("softmax", "helper = torch.exp")(work)
    without_metadata(work)
    for c in work.cells:
        c.source = c.source.replace("\n", "\r\n") + "\n"
    sources = sources_after(notebook, work)
    at = next(i for i, source in enumerate(sources) if source.startswith("helper"))
    assert sources[at + 1].startswith("def softmax") and len(sources) == len(work.cells)


@pytest.mark.parametrize("source", ["softmax = nn.Softmax(-1)", "class softmax:\n    pass"])
def test_answers_that_are_no_def_are_found_too(notebook, work, source):
    cell(work, "softmax").source = source
    without_metadata(work)
    submission.take(notebook, work)
    assert cell(notebook, "softmax").source == source


def test_a_split_answer_counts_whole(notebook, work):
    cell(work, "softmax").source = "def shifted(scores):\n    return scores - scores.amax(-1, keepdim=True)"
    copy_of_answer(RIGHT, below="softmax")(work)
    sources = sources_after(notebook, work)
    at = sources.index(RIGHT)
    assert sources[at - 1].startswith("def shifted") and "lesson.check" in sources[at + 1]


def test_a_stub_and_its_solved_copy_run_in_their_order(notebook, work):
    copy_of_answer(RIGHT, below="softmax")(work)
    sources = sources_after(notebook, work)
    assert "NotImplementedError" in sources[sources.index(RIGHT) - 1]


def test_a_copy_below_the_check_is_named_and_not_used(notebook, work):
    cell(work, "softmax").source = RIGHT
    copy_of_answer(WRONG, below="softmax-check")(work)
    notes = submission.take(notebook, work)
    assert cell(notebook, "softmax").source == RIGHT and WRONG not in [c.source for c in notebook.cells]
    assert notes == ["a copy of the answer cell of softmax stands below its check: it was not used"]


def test_an_answer_that_stands_only_below_its_check_counts(notebook, work):
    copy_of_answer(RIGHT, below="softmax-check")(work)
    work.cells.remove(cell(work, "softmax"))
    assert submission.take(notebook, work) == [] and cell(notebook, "softmax").source == RIGHT


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (edit("softmax", cell_type="markdown"), "the answer cell of softmax is a text cell"),
        (lambda nb: nb.cells.remove(cell(nb, "softmax")), "there is no answer cell of softmax"),
        (edit("setup", source="import numpy as np"), "not used, since it belongs to the course: the set-up cell"),
        (edit("by-hand", source="print(7)"), "belongs to the course: the cell `print(7)`"),
        (lambda nb: nb.metadata["course"].update(digest="old"), "of another version of the lesson"),
        (
            lambda nb: (nb.metadata.update(course=["?"]), nb.cells.remove(cell(nb, "softmax"))),
            "no answer cell of softm",
        ),
        (
            edit("softmax", metadata={"course": {"role": "answer", "exercise": "gone"}}, id="gone"),
            "has no exercise gone: its answer was not used",
        ),
    ],
)
def test_what_is_not_used_is_said(notebook, work, change, said):
    change(work)
    assert any(said in note for note in submission.take(notebook, work))


def test_cells_of_an_older_version_are_not_run_as_the_learners(notebook, work):
    work.metadata["course"]["digest"] = "old"
    old = copy.deepcopy(cell(work, "softmax-check"))
    old.id, old.source, old.metadata["course"]["exercise"] = "gone-check", 'lesson.check("gone")', "gone"
    work.cells.append(old)
    assert 'lesson.check("gone")' not in sources_after(notebook, work)


# ---- the run -------------------------------------------------------------------------------------------------


@pytest.fixture
def graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Grade a changed copy of a lesson, of which only set-up, answers and checks are run; the lines of its table."""

    def run(change: Change, lesson: syllabus.LessonInfo = LESSON, seconds: int = 30) -> list[str]:
        work, trusted = assemble.read(lesson.notebook), assemble.read(lesson.notebook)
        assemble.exercises_only(trusted)  # the rest of the lesson would only take time
        kept = {c.id for c in trusted.cells}
        if lesson is not LESSON:
            assemble.put_answers(work, assemble.reference_answers(lesson.name))
        before = {c.id for c in work.cells}
        change(work)
        work.cells = [c for c in work.cells if c.id in kept or c.id not in before]
        course = tmp_path / "course [1]" / lesson.notebook.name
        course.parent.mkdir(exist_ok=True)
        assemble.write(trusted, course)
        assemble.write(work, tmp_path / "mine.ipynb")
        monkeypatch.setattr(syllabus.LessonInfo, "notebook", course)
        options = [f"--nbval-cell-timeout={seconds}", "-p", "no:xdist"]
        monkeypatch.setattr(grade, "_OPTIONS", [*grade._OPTIONS, *options])
        return list(grade.table(grade.run(tmp_path / "mine.ipynb")))

    return run


def first_words(lines: list[str]) -> dict[str, str]:
    """The verdict of each exercise."""
    return {line.split()[0]: line.split()[1] for line in lines if len(line.split()) > 1}


def test_right_answer_scores(graded):
    assert graded(edit("softmax", source=RIGHT)) == [
        "  softmax   passed     1 of 1",
        "  total                1 of 1",
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (edit("softmax", source="import os\nos._exit(0)"), "softmax   failed     0 of 1   its cell: the kernel died"),
        (
            edit(
                "softmax",
                source=WRONG + "\nimport IPython.core.interactiveshell as m\n"
                "m.InteractiveShell.showtraceback = lambda *a, **k: None",
            ),
            "✗ softmax: 13 of 14 checks failed",  # an error that the notebook hides is seen
        ),
        (edit("softmax", source="# NBVAL_SKIP\n" + WRONG), "✗ softmax: 13 of 14 checks failed"),
        (edit("softmax", source="nump.array(1)\n" + RIGHT), "its cell: NameError: name 'nump' is not defined"),
        (
            edit("softmax", source="def softmax(scores):\n    return nump.exp(scores)"),
            "checks failed: NameError: name 'nump' is not defined",
        ),
        (add("softmax", "1 / 0"), "the cell `1 / 0`: ZeroDivisionError: division by zero"),
        (
            edit("softmax-check", source="pass"),
            "changed, but not used, since it belongs to the course: the cell `pass`",
        ),
        (add("softmax", "lesson.check = lambda name: None"), "did not say that it passed"),
        (edit("softmax", cell_type="markdown"), "is a text cell"),
    ],
)
def test_what_scores_nothing_says_why(graded, change, said):
    lines = graded(change)
    assert lines[1].split() == ["total", "0", "of", "1"]
    assert any(said in line for line in lines), lines


def test_what_a_check_prints_is_seen_whatever_stands_in_the_place_of_stdout(graded):
    silence = "import os, sys\nsys.stdout = open(os.devnull, 'w')"

    def change(notebook: nbformat.NotebookNode) -> None:
        cell(notebook, "softmax").source = RIGHT
        add("softmax", silence)(notebook)

    assert first_words(graded(change))["softmax"] == "passed"


FAULTS = {
    "the process ends": "import os\nos._exit(1)",
    "exit": "exit()",  # the kernel goes on for a moment
    "a C loop": "import re\nre.match(r'(a+)+b', 'a' * 64)",
    "interrupts swallowed": "while True:\n    try:\n        while True:\n            pass\n"
    "    except BaseException:\n        pass",
    "print without end": "while True:\n    try:\n        print('x' * 1000)\n    except BaseException:\n        pass",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_cell_that_ends_or_blocks_the_kernel_costs_only_itself(graded, fault):
    lines = graded(add("scaled_dot_product_attention", "kept = 1", FAULTS[fault], "assert kept"), LAYER, seconds=15)
    assert set(first_words(lines[:4]).values()) == {"passed"}, lines
    first = FAULTS[fault].partition("\n")[0]
    assert len(lines) == 6 and lines[5].startswith(f"  the cell `{first}`: "), lines


def test_an_answer_that_ends_the_kernel_costs_only_its_exercise(graded):
    kills = "def similarity_scores(queries, keys):\n    import os\n    os._exit(1)"
    lines = graded(edit("similarity_scores", source=kills), LAYER)
    assert list(first_words(lines[:4]).values()) == ["failed", "passed", "passed", "passed"]
    assert "the kernel died" in lines[0]


def test_a_learners_cells_write_into_a_folder_of_their_own(graded, tmp_path):
    """It lies where `my_course/` lies, so that relative paths mean the same; nothing stays."""
    before = set(syllabus.ROOT.iterdir())
    look = "from pathlib import Path\nPath('mine.txt').write_text('1')\nassert Path('../course_utils').is_dir()"
    lines = graded(add("softmax", look))
    assert len(lines) == 2 and set(syllabus.ROOT.iterdir()) == before
    assert not (tmp_path / "course [1]" / "mine.txt").exists()


def test_a_long_temporary_folder_does_not_stop_the_run(graded, tmp_path, monkeypatch):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    assert first_words(graded(edit("softmax", source=RIGHT)))["softmax"] == "passed"


def test_options_in_the_environment_do_not_change_the_verdict(graded, monkeypatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing --strict-config")
    assert first_words(graded(edit("softmax", source=RIGHT)))["softmax"] == "passed"


# ---- the command -----------------------------------------------------------------------------------------------


def unreadable(folder: Path) -> dict[str, Path]:
    """Files that are no lesson, by what is said of them."""
    contents = {
        "is not a readable notebook: NotJSONError": "<html>login</html>",
        "is not a readable notebook: RecursionError": "[" * 200_000,
        "belongs to no lesson": '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
    }
    found = {}
    for number, (said, text) in enumerate(contents.items()):
        found[said] = folder / f"file-{number}.ipynb"
        found[said].write_text(text)
    found["There is no file"] = folder / "absent.ipynb"
    if os.name == "posix":
        found["it is no regular file"] = folder / "pipe.ipynb"
        os.mkfifo(found["it is no regular file"])
    return found


def test_what_cannot_be_graded_is_said_and_the_others_are_graded(tmp_path, monkeypatch, capsys):
    files = unreadable(tmp_path)
    monkeypatch.setattr(grade, "table", lambda report: report)
    true_run = grade.run
    monkeypatch.setattr(grade, "run", lambda path: ["graded"] if path.stem == "good" else true_run(path))
    assert grade.main([*map(str, files.values()), str(tmp_path / "good.ipynb")]) == 1
    shown = capsys.readouterr()
    assert shown.out.endswith("good.ipynb:\ngraded\n")
    assert len(shown.err.splitlines()) == len(files)
    for said, line in zip(files, shown.err.splitlines(), strict=True):
        assert said in line


def test_a_run_without_a_verdict_is_an_error(tmp_path, monkeypatch, work):
    def nothing(command: list[str], **options: Any) -> subprocess.CompletedProcess:
        return subprocess.CompletedProcess(command, 5, stdout="collected 0 items")

    assemble.write(work, tmp_path / "mine.ipynb")
    monkeypatch.setattr(subprocess, "run", nothing)
    with pytest.raises(grade.NotGraded, match=r"no verdict \(exit code 5\)(.|\n)*collected 0 items"):
        grade.run(tmp_path / "mine.ipynb")


def test_results_come_in_the_order_of_the_names(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(grade, "run", lambda path: path)
    monkeypatch.setattr(grade, "table", lambda path: [f"  {path.stem}"])
    names = [f"{number}.ipynb" for number in range(20)]
    assert grade.main(names, jobs=4) == 0
    assert capsys.readouterr().out.split() == [word for n in range(20) for word in (f"{n}.ipynb:", str(n))]


@pytest.mark.parametrize("words", [["-j"], ["-j", "0"], ["-j", "many"], ["-j", "-2"]])
def test_a_number_of_jobs_is_asked_for(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["grade", *words])
    assert "argument -j: " in capsys.readouterr().err


def test_grade_with_nothing_to_grade(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    assert cli.main(["grade"]) == 1
    assert "lab" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "passed"), [("-k softmax-check", "0 of 1"), ("-k nothing", "0 of 0")])
def test_cells_that_an_option_leaves_out_do_not_end_the_run(option, passed, tmp_path):
    """Nobody has to use our command: the plug-in works with pytest's own options."""
    options = ["-p", "course_utils.grading.nbval_plugin", "--nbval", "--answers", str(LESSON.notebook)]
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", *options, *option.split(), str(LESSON.notebook)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert f"score: {passed} points" in done.stdout and "Traceback" not in done.stderr, done.stdout + done.stderr


def test_the_pytest_of_the_readme_runs_a_notebook_that_names_another_kernel(tmp_path):
    """As conda and VS Code leave it."""
    (line,) = re.findall(r"`pytest (.*) my_course/.*`", (syllabus.ROOT / "README.md").read_text(encoding="utf-8"))
    mine = nbformat.v4.new_notebook(cells=[new_code_cell("x = 1", execution_count=1)])
    mine.metadata.kernelspec = {"name": "conda-env-x-py", "display_name": "x", "language": "python"}
    assemble.write(mine, tmp_path / "mine.ipynb")
    command = [sys.executable, "-m", "pytest", *line.split(), "mine.ipynb"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def test_an_unreadable_answers_file_is_a_clear_usage_error(tmp_path):
    (tmp_path / "mine.ipynb").write_text("<html>")
    options = ["-p", "course_utils.grading.nbval_plugin", "--nbval", "--answers", "mine.ipynb"]
    command = [sys.executable, "-m", "pytest", *options, str(LESSON.notebook)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 4 and "mine.ipynb is not a readable notebook" in done.stderr
