"""A pytest plug-in on top of nbval: run the course's notebooks with somebody's answers.

    pytest -p course_utils.grading.nbval_plugin --nbval --answers reference notebooks/00_start_here.ipynb
    pytest -p course_utils.grading.nbval_plugin --nbval --answers mine.ipynb notebooks/00_start_here.ipynb

The notebook that is collected is always the course's: its checks, its order, its tags. With `reference` the
answer cells hold the course's own answers, and stored outputs are compared; with a file they hold the answers
of that notebook, and only errors count. In the course's `notebooks/` no notebook need be named with a file: it is the
lesson that the answers belong to. `--report FILE` writes the verdict of each exercise as JSON.
"""

import json
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from queue import Empty
from typing import Any, NoReturn

import pytest
from nbformat import NotebookNode
from nbval import plugin as nbval

from course_utils.authoring import assemble
from course_utils.grading import submission
from course_utils.grading.kernel import Kernel, use_sockets_of_the_file_system
from course_utils.syllabus import ROOT

REFERENCE = "reference"
_MOST_KERNELS = 8  # new kernels for one notebook; after that a cell without a kernel fails
_RAISED = re.compile(r"^ *your function raised (.+)", re.MULTILINE)  # as a check says it
_NOTES = pytest.StashKey[list[str]]()  # what of a learner's notebook was not used


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("nbval")
    group.addoption("--answers", help='"reference", or the notebook to take the answers from')
    group.addoption("--report", help="write the verdict of each exercise to this file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_NOTES] = []
    if _is_graded(config):
        _find_lesson(config)
    config.add_cleanup(use_sockets_of_the_file_system())


def _find_lesson(config: pytest.Config) -> None:
    """Run the lesson that the answers belong to, where no notebook is named."""
    answers = config.option.answers
    try:
        lesson = submission.lesson_of(assemble.read(answers), answers)
    except ValueError as error:
        if config.option.report:
            Path(config.option.report).write_text(json.dumps({"error": str(error)}), encoding="utf-8")
        raise pytest.UsageError(f"--answers: {error}") from None
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        # By its name alone, in its folder: pytest reads brackets in a longer path as something else.
        config.args = [lesson.notebook.name]


def _is_graded(config: pytest.Config) -> bool:
    """Whether somebody's answers are run, and not the course's own."""
    return config.option.answers not in (None, REFERENCE)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Generator[None, list[Any], list[Any]]:
    """Replace nbval's collector by ours: a second one beside it would run each notebook twice."""
    found = yield
    return [Notebook.from_parent(parent, path=file_path) if isinstance(c, nbval.IPyNbFile) else c for c in found]


class Cell(nbval.IPyNbCell):
    """One code cell, named by its id."""

    @property
    def notebook(self) -> "Notebook":
        assert isinstance(self.parent, Notebook)
        return self.parent

    def setup(self) -> None:
        """Not nbval's: after a time-out that would excuse every later cell."""
        self.notebook.timed_out = False

    def runtest(self) -> None:
        name = assemble.exercise_name(self.cell) if assemble.role(self.cell) == "check" else None
        try:
            self.notebook.make_ready(self)
            if name is not None:
                self.notebook.running.restore_streams()
            super().runtest()
        except RuntimeError as error:  # the kernel has died
            self.raise_cell_error(str(error))
        reply = self.notebook.running.reply
        if reply.get("status") == "error" and not self.options["check_exception"]:
            self.raise_cell_error(f"{reply.get('ename')}: {reply.get('evalue')} (the notebook hid this error)")
        if name is not None and not self._printed().startswith(f"✓ {name}: "):
            self.raise_cell_error(f"the check of {name} did not say that it passed: the notebook has replaced it")

    def _printed(self) -> str:
        return "".join(out.get("text", "") for out in self.test_outputs or [])

    def raise_cell_error(self, message: str, *args: Any, **options: Any) -> NoReturn:
        reply = self.notebook.running.reply
        said = f"{reply.get('ename')}: {reply.get('evalue')}" if reply.get("status") == "error" else message
        if self.notebook.running.is_flooded:
            said = "it printed without end, and was stopped"
        if assemble.role(self.cell) == "check" and (raised := _RAISED.search(self._printed())):
            said = f"{said}: {raised[1]}"
        self.user_properties.append(("error", said))
        super().raise_cell_error(message, *args, **options)


class Notebook(nbval.IPyNbFile):
    @property
    def running(self) -> Kernel:
        assert isinstance(self.kernel, Kernel)  # it is None before the set-up
        return self.kernel

    def setup(self) -> None:
        """Start the kernel. A learner's cells work in a folder of their own, which lies where `my_course/` lies."""
        self._scratch = _scratch_folder() if _is_graded(self.config) else None
        self._ran: list[Cell] = []
        self._kernels = 0
        self._start_kernel()
        self.setup_sanitize_files()

    def teardown(self) -> None:
        super().teardown()
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def make_ready(self, cell: Cell) -> None:
        """A kernel in which the cells before this one have run: one that died or hangs is replaced.

        The cell at fault, the last one, is not run again. If it was a check, the answer that it called is left out
        instead: the check then puts the course's own function in its place.
        """
        while not self.running.is_alive():
            fault = self._ran.pop()
            answers = [one for one in self._ran if _answers(one.cell, fault.cell)]
            if answers:
                self._ran = [*(one for one in self._ran if one not in answers), fault]
            self._start_kernel()
            self._run_again()
        self._ran.append(cell)

    def _run_again(self) -> None:
        """Run the cells so far. One that ends the kernel becomes the last, and the kernel is stopped."""
        for number, cell in enumerate(self._ran):
            try:
                message = self.running.execute_cell_input(cell.cell.source, allow_stdin=False)
                self.running.await_reply(message, self.config.option.nbval_cell_timeout)
            except (Empty, RuntimeError):
                self._ran.append(self._ran.pop(number))
                self.running.stop()
                return

    def _start_kernel(self) -> None:
        if self._kernels == _MOST_KERNELS:
            self.running.reply = {}  # that of an earlier cell
            raise RuntimeError("too many cells of this notebook end their kernel: no new one is started")
        self._kernels += 1
        self.kernel = Kernel(Path(self._scratch or self.path.parent), self.config.option.nbval_kernel_startup_timeout)

    def collect(self) -> Generator[Cell]:
        notebook = assemble.read(self.path)
        own = {cell.id for cell in notebook.cells}
        answers = self.config.option.answers
        compare = self.compare_outputs and not _is_graded(self.config)
        self._put_answers(notebook, answers)
        for number, cell in enumerate(assemble.code_cells(notebook)):
            options = defaultdict(bool, check=compare)
            if cell.id in own and assemble.role(cell) != "answer":  # a marker in a learner's code means nothing
                options.update(nbval.find_metadata_tags(cell.metadata))
                options.update(nbval.find_comment_markers(cell.source))
            if assemble.role(cell) == "answer" and answers:
                cell.outputs, cell.execution_count = [], None  # stored for another source
            item = Cell.from_parent(self, name=cell.id, cell_num=number, cell=cell, options=options)
            if assemble.role(cell) == "check":
                points = cell.metadata.get("nbgrader", {}).get("points", 0)
                item.user_properties.append(
                    ("exercise", [self.path.name, number, assemble.exercise_name(cell), points])
                )
            elif assemble.role(cell) == "answer" or cell.id not in own:
                item.user_properties.append(("learners", submission.label(cell)))
            yield item

    def _put_answers(self, notebook: NotebookNode, answers: str | None) -> None:
        if answers == REFERENCE:
            lesson = submission.lesson_of(notebook, self.path)
            assemble.put_answers(notebook, assemble.reference_answers(lesson.name))
        elif answers:
            work = assemble.read(answers)
            mine, theirs = submission.lesson_of(notebook, self.path), submission.lesson_of(work, answers)
            if theirs != mine:
                raise assemble.UnreadableNotebook(f"{answers} is the lesson {theirs.name!r}, not {mine.name!r}")
            self.config.stash[_NOTES] += submission.take(notebook, work)


def _answers(answer: NotebookNode, check: NotebookNode) -> bool:
    roles = assemble.role(answer), assemble.role(check)
    return roles == ("answer", "check") and assemble.exercise_name(answer) == assemble.exercise_name(check)


def _scratch_folder() -> str:
    try:
        return tempfile.mkdtemp(prefix=".grading-", dir=ROOT)
    except OSError:  # the course's folder cannot be written to
        return tempfile.mkdtemp(prefix="grading-")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the score where somebody's answers were graded, and write the report that was asked for."""
    entries = [entry for kind in terminalreporter.stats.values() for entry in kind]
    reports = [one for one in entries if isinstance(one, pytest.TestReport)]  # not a cell that `-k` has left out
    exercises = [entry for report in reports if (entry := _entry(report))]
    exercises.sort(key=lambda one: (one["notebook"], one["cell"]))  # pytest has sorted them by outcome
    total = sum(e["points"] for e in exercises)
    points = sum(e["points"] for e in exercises if e["passed"])
    if _is_graded(config):
        terminalreporter.write_line(f"score: {points:g} of {total:g} points")
    if config.option.report:
        errors = [error for report in reports if (error := _learners_error(report))]
        found = {"exercises": exercises, "points": points, "total": total}
        text = json.dumps({**found, "errors": errors, "notes": config.stash[_NOTES]}, indent=1, ensure_ascii=False)
        Path(config.option.report).write_text(text, encoding="utf-8")


def _entry(report: pytest.TestReport) -> dict[str, Any] | None:
    """What a pytest report says about an exercise; None if it is not the run of a check cell."""
    properties: dict[str, Any] = dict(report.user_properties)
    if "exercise" not in properties or not (report.when == "call" or report.outcome == "failed"):
        return None
    notebook, number, name, points = properties["exercise"]
    passed = report.when == "call" and report.outcome == "passed"
    message = "" if passed else properties.get("error") or str(report.longrepr)
    found = {"notebook": notebook, "cell": number, "name": name, "points": points}
    return {**found, "passed": passed, "message": _first_line(message)}


def _learners_error(report: pytest.TestReport) -> list[str] | None:
    """A cell of the learner that ended in an error: what it is called, and the error."""
    properties: dict[str, Any] = dict(report.user_properties)
    if report.when != "call" or not {"learners", "error"} <= properties.keys():
        return None
    return [properties["learners"], _first_line(properties["error"])]


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0].removeprefix("Unsolved: ")[:300]
