"""A pytest plug-in on top of nbval: run the course's notebooks with somebody's answers.

    pytest -p course_utils.grading.nbval_plugin --nbval --answers reference notebooks/00_start_here.ipynb
    pytest -p course_utils.grading.nbval_plugin --nbval --answers mine.ipynb notebooks/00_start_here.ipynb

The notebook that is collected is always the course's: its checks, its order, its tags. With `reference` the
answer cells hold the course's own answers, and stored outputs are compared; with a file they hold the answers
of that notebook, and only errors count. `--report FILE` writes the verdict of each exercise as JSON.
"""

import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from nbformat import NotebookNode
from nbval import plugin as nbval

from course_utils.authoring import assemble
from course_utils.grading import submission
from course_utils.grading.kernel import Kernel, use_sockets_of_the_file_system
from course_utils.syllabus import ROOT

REFERENCE = "reference"
_MOST_KERNELS = 8  # new kernels for one notebook; after that a cell without a kernel fails
_NOTES = pytest.StashKey[list[str]]()  # what of a learner's notebook was not used


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("nbval")
    group.addoption("--answers", help='"reference", or the notebook to take the answers from')
    group.addoption("--report", help="write the verdict of each exercise to this file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_NOTES] = []
    if _is_graded(config):
        try:
            assemble.read(config.option.answers)
        except assemble.UnreadableNotebook as error:
            raise pytest.UsageError(f"--answers: {error}") from None
    config.add_cleanup(use_sockets_of_the_file_system())


def _is_graded(config: pytest.Config) -> bool:
    """Whether somebody's answers are run, and not the course's own."""
    return config.option.answers not in (None, REFERENCE)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Iterator[Any]:
    """Replace nbval's collector by ours: a second one beside it would run each notebook twice."""
    found = yield
    return [Notebook.from_parent(parent, path=file_path) if isinstance(c, nbval.IPyNbFile) else c for c in found]


class Cell(nbval.IPyNbCell):
    """One code cell, named by its id."""

    def setup(self) -> None:
        """Not nbval's: after a time-out that would excuse every later cell."""
        self.parent.timed_out = False

    def runtest(self) -> None:
        self.parent.make_ready(self)
        name = assemble.exercise_name(self.cell) if assemble.role(self.cell) == "check" else None
        if name is not None:
            self.parent.kernel.restore_streams()
        try:
            super().runtest()
        except RuntimeError as error:  # the kernel has died
            self.raise_cell_error(str(error))
        reply = self.parent.kernel.reply
        if reply.get("status") == "error" and not self.options["check_exception"]:
            self.raise_cell_error(f"{reply.get('ename')}: {reply.get('evalue')} (the notebook hid this error)")
        text = "".join(out.get("text", "") for out in self.test_outputs or [])
        if name is not None and not text.startswith(f"✓ {name}: "):
            self.raise_cell_error(f"the check of {name} did not say that it passed: the notebook has replaced it")

    def raise_cell_error(self, message: str, *args: Any, **options: Any) -> None:
        reply = self.parent.kernel.reply
        said = f"{reply.get('ename')}: {reply.get('evalue')}" if reply.get("status") == "error" else message
        if self.parent.kernel.is_flooded:
            said = "it printed without end, and was stopped"
        self.user_properties.append(("error", said))
        super().raise_cell_error(message, *args, **options)


class Notebook(nbval.IPyNbFile):
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
        while not self.kernel.is_alive():
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
                message = self.kernel.execute_cell_input(cell.cell.source, allow_stdin=False)
                self.kernel.await_reply(message, self.config.option.nbval_cell_timeout)
            except (Empty, RuntimeError):
                self._ran.append(self._ran.pop(number))
                self.kernel.stop()
                return

    def _start_kernel(self) -> None:
        if self._kernels == _MOST_KERNELS:
            pytest.fail("too many cells of this notebook end their kernel: no new one is started", pytrace=False)
        self._kernels += 1
        self.kernel = Kernel(Path(self._scratch or self.path.parent), self.config.option.nbval_kernel_startup_timeout)

    def collect(self) -> Iterator[Cell]:
        self.nb = assemble.read(self.path)
        own = {cell.id for cell in self.nb.cells}
        answers = self.config.option.answers
        compare = self.compare_outputs and not _is_graded(self.config)
        self._put_answers(answers)
        for number, cell in enumerate(assemble.code_cells(self.nb)):
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

    def _put_answers(self, answers: str | None) -> None:
        if answers == REFERENCE:
            lesson = submission.lesson_of(self.nb, self.path)
            assemble.put_answers(self.nb, assemble.reference_answers(lesson.name))
        elif answers:
            work = assemble.read(answers)
            mine, theirs = submission.lesson_of(self.nb, self.path), submission.lesson_of(work, answers)
            if theirs != mine:
                raise assemble.UnreadableNotebook(f"{answers} is the lesson {theirs.name!r}, not {mine.name!r}")
            self.config.stash[_NOTES] += submission.take(self.nb, work)


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
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
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


def _entry(report: Any) -> dict[str, Any] | None:
    """What a pytest report says about an exercise; None if it is not the run of a check cell."""
    properties = dict(getattr(report, "user_properties", ()))
    if "exercise" not in properties or not (report.when == "call" or report.outcome == "failed"):
        return None
    notebook, number, name, points = properties["exercise"]
    passed = report.when == "call" and report.outcome == "passed"
    message = "" if passed else properties.get("error") or str(report.longrepr)
    found = {"notebook": notebook, "cell": number, "name": name, "points": points}
    return {**found, "passed": passed, "message": _first_line(message)}


def _learners_error(report: Any) -> list[str] | None:
    """A cell of the learner that ended in an error: what it is called, and the error."""
    properties = dict(getattr(report, "user_properties", ()))
    if report.when != "call" or not {"learners", "error"} <= properties.keys():
        return None
    return [properties["learners"], _first_line(properties["error"])]


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0].removeprefix("Unsolved: ")[:300]
