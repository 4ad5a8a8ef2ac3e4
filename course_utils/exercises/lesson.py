"""`start` opens a lesson; the `lesson` it gives checks answers, gives hints and proves claims."""

import ast
import inspect
import os
import random
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import numpy
import torch

from course_utils import syllabus
from course_utils.exercises.compare import describe
from course_utils.exercises.exercise import Exercise, exercises_of
from course_utils.exercises.judge import Verdict, judge
from course_utils.figures import style
from course_utils.strict import is_strict

STANDS_IN = "Until yours passes, the lesson uses the course's own version, so all later cells run."


class Unsolved(AssertionError):
    """A check or a claim did not pass, and somebody is testing or grading (strict mode)."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


def start(name: str, namespace: MutableMapping[str, Any]) -> "Lesson":
    """Open the lesson called `name`; `namespace` is the notebook's `globals()`. Safe to call again.

    Seeds Python, NumPy and PyTorch, sets the figure style, and lets Triton run in its interpreter where there
    is no GPU. Raises ValueError when no lesson has that name.
    """
    info = syllabus.find(name)
    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")  # before the first `import triton`
    exercises = exercises_of(info.name)  # before seeding: their inputs are random numbers too
    random.seed(0)
    torch.manual_seed(0)
    numpy.random.seed(0)
    style.use()
    return Lesson(info, exercises, namespace)


class Lesson:
    """An open lesson. Its methods are what a notebook calls; `device` is where its tensors should live."""

    def __init__(
        self, info: syllabus.LessonInfo, exercises: Mapping[str, Exercise], namespace: MutableMapping[str, Any]
    ):
        self.info = info
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._exercises = exercises
        self._namespace = namespace
        self._verdicts: dict[str, str] = {}  # exercise -> the first line that check printed
        self._hints_given: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"Lesson {self.info.number:02d}: {self.info.title}"

    def check(self, name: str) -> None:
        """Check the learner's `name`, say what was found, and let the reference stand in unless it passed."""
        exercise = self._find(name)
        headline, details = self._look_at(exercise)
        self._verdicts[name] = headline
        _show_verdict(headline, [*details, STANDS_IN] if headline.startswith("✗") else details)
        if not headline.startswith("✓"):
            self._namespace[name] = exercise.reference
            if is_strict() and not exercise.needs:
                raise Unsolved(headline)

    def try_out(self, name: str, function: Callable[..., Any]) -> None:
        """Say what `check` would say of `function` as the answer to the exercise `name`; nothing is changed."""
        _show_verdict(*self._describe(self._find(name), judge(self._find(name), function)))

    def hint(self, name: str) -> None:
        """Print one hint for the exercise `name`, another one each time."""
        hints = self._find(name).hints
        given = self._hints_given.get(name, 0)
        self._hints_given[name] = given + 1
        if given < len(hints):
            print(f"Hint {given + 1} of {len(hints)}: {hints[given]}")
        else:
            print(f'That was the last hint. lesson.solution("{name}") shows how the course wrote it.')

    def solution(self, name: str) -> None:
        """Print the course's own version of the exercise `name`."""
        print(inspect.getsource(self._find(name).function))

    def claim(self, id: str, sentence: str, condition: bool, measured: dict[str, float] | None = None) -> None:
        """State what the lesson has just shown: one line, with ✓ if `condition` holds and ✗ if not.

        `measured` (name -> number) is kept in the output's metadata. Raises `Unsolved` in strict mode only.
        """
        if not re.fullmatch(r"C\d\d", id):
            raise ValueError(f"a claim's id looks like C01, not {id!r}")
        line = f"{'✓' if condition else '✗'} {id}: {sentence}"
        _show_line(line, {"measured": {k: float(v) for k, v in (measured or {}).items()}})
        if not condition and is_strict():
            raise Unsolved(line)

    def summary(self) -> None:
        """Print the verdict of every exercise and the points so far."""
        rows = [
            (e, self._verdicts.get(e.name, f"· {e.name} has not been checked yet")) for e in self._exercises.values()
        ]
        solved = [e for e, headline in rows if headline.startswith("✓")]
        counted = [e for e, _ in rows if not e.needs]
        points = f"{sum(e.points for e in solved)} of {sum(e.points for e in counted)} points"
        print(f"Lesson {self.info.number:02d}: {len(solved)} of {len(counted)} exercises solved, {points}")
        for exercise, headline in rows:
            first = headline.split(". ")[0].rstrip(".")
            print(f"  {first} ({exercise.points} {'point' if exercise.points == 1 else 'points'})")

    def _find(self, name: str) -> Exercise:
        if name not in self._exercises:
            raise ValueError(f"this lesson has no exercise {name!r}; it has: {', '.join(self._exercises)}")
        return self._exercises[name]

    def _look_at(self, exercise: Exercise) -> tuple[str, list[str]]:
        """The headline and the details to print for what stands under the exercise's name now."""
        name = exercise.name
        answer = self._namespace.get(name)
        if answer is exercise.reference:
            return self._stand_in_again(name)
        broken = _syntax_error(self._namespace, name)
        if broken is not None:
            return f"✗ {name}: the answer cell is not valid Python", [broken]
        if name not in self._namespace:
            return f"✗ {name} is not defined", [f"Run the cell above that begins with `def {name}`."]
        if not callable(answer):
            return f"✗ {name} is not a function", [f"It is {describe(answer)} now."]
        return self._describe(exercise, judge(exercise, answer))

    def _stand_in_again(self, name: str) -> tuple[str, list[str]]:
        headline = self._verdicts.get(name, f"○ {name} is not written yet. {STANDS_IN}")
        again = "This is the old result: the answer cell has not been run again since then."
        return headline, [_syntax_error(self._namespace, name) or again]

    def _describe(self, exercise: Exercise, verdict: Verdict) -> tuple[str, list[str]]:
        name, failed = exercise.name, verdict.failed
        printed = [f"It printed:\n{textwrap.indent(verdict.printed, '  ')}"] if verdict.printed else []
        if verdict.status == "missing":
            return f"– {name} needs {exercise.needs}", ["It cannot be checked here, and does not count."]
        if verdict.status == "passed":
            return f"✓ {name}: {len(verdict.results)} checks passed", printed
        if verdict.status == "unwritten":
            return f"○ {name} is not written yet. {STANDS_IN}", printed
        headline = f"✗ {name}: {len(failed)} of {len(exercise.checks)} checks failed"
        if verdict.out_of_time:
            headline = f"✗ {name}: out of time"
        details = [f"First failed check: {failed[0].name}", textwrap.indent(failed[0].problem or "", "  ")]
        if verdict.mistake:
            details += [f"This looks like: {verdict.mistake.name}. {verdict.mistake.hint}"]
        return headline, [*details, *printed, f'lesson.hint("{name}") gives a hint.']


def _show_verdict(headline: str, details: list[str]) -> None:
    print("\n".join([headline, *(f"  {line}" for text in details for line in text.split("\n"))]))


def _show_line(line: str, metadata: dict[str, Any]) -> None:
    """Print one line; in a notebook, with metadata on its output (nbval compares the line only)."""
    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
        from IPython.display import display

        display({"text/plain": line}, raw=True, metadata=metadata)
    else:
        print(line)


def _syntax_error(namespace: Mapping[str, Any], name: str) -> str | None:
    """Where the newest cell that defines `name` is not valid Python. IPython keeps the cells it was given in `In`."""
    is_answer = re.compile(rf"^[^#\n]*\b(def|class)\s+{name}\b|^\s*{name}\s*(:[^=\n]*)?=[^=]", re.MULTILINE).search
    cells = namespace.get("In")
    cells = cells if isinstance(cells, list) else []  # a learner may call anything `In`
    newest = next((cell for cell in reversed(cells) if isinstance(cell, str) and is_answer(cell)), None)
    if newest is None:
        return None
    try:
        compile(newest, "<answer>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError as error:
        return f"{type(error).__name__} in line {error.lineno}: {error.msg}"
    return None
