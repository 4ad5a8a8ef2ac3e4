"""A pytest plug-in on top of nbval: run the course's notebooks with somebody's answers.

    pytest -p course_utils.authoring.nbval_plugin --nbval --answers reference notebooks/00_start_here.ipynb
    pytest -p course_utils.authoring.nbval_plugin --nbval --answers mine.ipynb notebooks/00_start_here.ipynb

The notebook that is collected is always the course's: its checks, its order, its tags. With `reference` the
answer cells hold the course's own answers, and stored outputs are compared; with a file they hold the answers
of that notebook, and only errors count. `--report FILE` writes the verdict of each exercise as JSON.
"""

import json
import os
import re
import shutil
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from jupyter_client.manager import KernelManager
from nbval import kernel as nbval_kernel
from nbval import plugin as nbval

from course_utils.authoring import assemble

REFERENCE = "reference"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("nbval")
    group.addoption("--answers", help='"reference", or the notebook to take the answers from')
    group.addoption("--report", help="write the verdict of each exercise to this file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.answers not in (None, REFERENCE):
        try:
            assemble.read(config.option.answers)
        except assemble.UnreadableNotebook as error:
            raise pytest.UsageError(f"--answers: {error}") from None
    nbval.RunningKernel = Kernel  # the name that nbval's IPyNbFile.setup looks up
    if os.name == "posix":
        # UNIX sockets: two workers can never choose the same TCP port, and no network is needed.
        folder = tempfile.mkdtemp(prefix="nb")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        nbval_kernel.KernelManager = lambda **options: KernelManager(
            transport="ipc", ip=f"{folder}/{uuid.uuid4().hex[:8]}", **options
        )


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Iterator[Any]:
    """Replace nbval's collector by ours: a second one beside it would run each notebook twice."""
    found = yield
    return [Notebook.from_parent(parent, path=file_path) if isinstance(c, nbval.IPyNbFile) else c for c in found]


class Kernel(nbval_kernel.RunningKernel):
    """As nbval's, but it notices at once that the kernel has died, and keeps the reply."""

    reply: dict[str, Any] = {}  # noqa: RUF012 (replaced, never changed)

    def await_reply(self, msg_id: str, timeout: float | None = None) -> None:
        end = time.monotonic() + (timeout or 1e9)
        while True:
            try:
                message = self.get_message("shell", timeout=min(0.5, max(0.01, end - time.monotonic())))
            except Empty:
                if not self.is_alive():
                    raise RuntimeError("the kernel died while it ran this cell") from None
                if time.monotonic() >= end:
                    raise  # nbval then interrupts the kernel
                continue
            if message["parent_header"].get("msg_id") == msg_id:
                self.reply = message["content"]
                return


class Cell(nbval.IPyNbCell):
    """One code cell, named by its id."""

    def setup(self) -> None:
        """Not nbval's: after a time-out that would excuse every later cell."""
        self.parent.timed_out = False

    def runtest(self) -> None:
        super().runtest()
        reply = self.parent.kernel.reply
        if reply.get("status") == "error" and not self.options["check_exception"]:
            self.raise_cell_error(f"{reply.get('ename')}: {reply.get('evalue')} (the notebook hid this error)")
        name = assemble.exercise_name(self.cell) if assemble.role(self.cell) == "check" else None
        text = "".join(out.get("text", "") for out in self.test_outputs)
        if name is not None and not text.startswith(f"✓ {name}: "):
            self.raise_cell_error(f"the check of {name} did not say that it passed: the notebook has replaced it")


class Notebook(nbval.IPyNbFile):
    def collect(self) -> Iterator[Cell]:
        self.nb = assemble.read(self.path)
        own = {cell.id for cell in self.nb.cells}
        answers = self.config.option.answers
        compare = self.compare_outputs and answers in (None, REFERENCE)
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
                item.user_properties.append(("exercise", [self.path.name, assemble.exercise_name(cell), points]))
            yield item

    def _put_answers(self, answers: str | None) -> None:
        if answers == REFERENCE:
            lesson = assemble.lesson_of(self.nb, self.path)
            assemble.put_answers(self.nb, assemble.reference_answers(lesson.name))
        elif answers:
            work = assemble.read(answers)
            mine, theirs = (nb.metadata.get("course", {}).get("lesson") for nb in (self.nb, work))
            if theirs not in (None, mine):
                raise assemble.UnreadableNotebook(f"{answers} is the lesson {theirs!r}, not {mine!r}")
            assemble.put_learners_work(self.nb, work)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the score where somebody's answers were graded, and write the report that was asked for."""
    exercises = [
        entry for reports in terminalreporter.stats.values() for report in reports if (entry := _entry(report))
    ]
    total = sum(e["points"] for e in exercises)
    points = sum(e["points"] for e in exercises if e["passed"])
    if config.option.answers not in (None, REFERENCE):
        terminalreporter.write_line(f"score: {points:g} of {total:g} points")
    if config.option.report:
        text = json.dumps({"exercises": exercises, "points": points, "total": total}, indent=1, ensure_ascii=False)
        Path(config.option.report).write_text(text, encoding="utf-8")


def _entry(report: Any) -> dict[str, Any] | None:
    """What a pytest report says about an exercise; None if it is not the run of a check cell."""
    notebook, name, points = dict(getattr(report, "user_properties", ())).get("exercise", (None, None, 0))
    if name is None or not (report.when == "call" or report.outcome == "failed"):
        return None
    passed = report.when == "call" and report.outcome == "passed"
    text = "" if passed else re.sub(r"\x1b\[[0-9;]*m", "", str(report.longrepr or "")).strip()
    return {"notebook": notebook, "name": name, "points": points, "passed": passed, "message": _last_line(text)}


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("Unsolved: ")[:500] if lines else ""
