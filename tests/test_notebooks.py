"""What holds for every lesson that exists: its exercises, its mistakes, its notebook."""

import ast
import builtins
import inspect
import re
import subprocess
import symtable
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

from course_utils import syllabus
from course_utils.authoring import assemble, build, stamps
from course_utils.exercises.exercise import Exercise, Mistake, defined, exercises_of
from course_utils.exercises.judge import judge, recognise, run_mistake

LESSONS = [lesson for lesson in syllabus.LESSONS if lesson.ready]
WRITTEN = [x for x in syllabus.LESSONS if (syllabus.ROOT / "course_utils" / "exercises" / f"{x.name}.py").exists()]
EXERCISES = [e for lesson in WRITTEN for e in exercises_of(lesson.name).values() if not e.needs]
MISTAKES = [(exercise, mistake) for exercise in EXERCISES for mistake in exercise.mistakes]

every_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)


# ---- exercises ---------------------------------------------------------------------------------------------


@every_exercise
def test_reference_passes(exercise: Exercise):
    verdict = judge(exercise, exercise.reference)
    assert verdict.status == "passed", verdict.failed


@every_exercise
def test_stub_is_not_written(exercise: Exercise):
    assert judge(exercise, run_source(exercise, stamps.stub(exercise))).status == "unwritten"


@every_exercise
def test_there_are_enough_mistakes_and_hints(exercise: Exercise):
    assert len(exercise.mistakes) >= 3 and len(exercise.hints) >= 2 and len(exercise.checks) >= 3
    assert len({m.name for m in exercise.mistakes}) == len(exercise.mistakes)


@every_exercise
def test_an_error_that_the_docstring_promises_is_asked_for(exercise: Exercise):
    for error in re.findall(r"[Rr]aises (\w+Error)", exercise.function.__doc__ or ""):
        assert any(error in check.name for check in exercise.checks), error


@pytest.mark.usefixtures("no_hook")
@pytest.mark.parametrize(("exercise", "mistake"), MISTAKES, ids=lambda x: getattr(x, "name", x))
def test_mistake_fails_with_its_own_hint(exercise: Exercise, mistake: Mistake):
    results = run_mistake(exercise, mistake)
    assert any(r.problem for r in results), f"no check notices: {mistake.name}"
    assert recognise(exercise, results) is mistake, f"taken for: {recognise(exercise, results)}"


def zeros_like(value: Any) -> Any:
    """The same shapes and types with nothing in them."""
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if isinstance(value, list | tuple):
        return type(value)(map(zeros_like, value))
    return type(value)(0) if isinstance(value, bool | int | float) else value


@every_exercise
def test_lazy_answers_fail(exercise: Exercise):
    def raises(*args: Any, **kwargs: Any) -> Any:
        raise ArithmeticError

    lazy = {
        "first argument": lambda *args, **kwargs: (*args, *kwargs.values())[0],
        "None": lambda *args, **kwargs: None,
        "zeros": lambda *args, **kwargs: zeros_like(exercise.reference(*args, **kwargs)),
        "raises": raises,
    }
    for name, answer in lazy.items():
        assert judge(exercise, answer).status == "wrong", f"passes: {name}"


@every_exercise
def test_reference_needs_only_what_its_notebook_defines(exercise: Exercise):
    lesson = syllabus.find(exercise.lesson)
    if not lesson.ready:
        pytest.skip("its notebook is still to come")
    notebook = assemble.read(lesson.notebook)
    defined = set(dir(builtins)) | {"lesson"}
    for cell in assemble.code_cells(notebook):
        if cell.id == exercise.name:
            break
        defined |= names_defined(cell.source)
    free = free_names(inspect.getsource(exercise.function)) - {exercise.name}
    assert free <= defined, f"not defined above the answer cell: {sorted(free - defined)}"


def run_source(exercise: Exercise, source: str) -> Any:
    """The function that the source defines, among the names of its lesson's module."""
    return defined(source, exercise.function, "a test of")


def free_names(source: str) -> set[str]:
    """Every name that the source looks up outside itself."""

    def walk(table: symtable.SymbolTable) -> set[str]:
        module = table.get_type() == "module"
        outside = (lambda s: s.is_referenced() and not s.is_assigned()) if module else (lambda s: s.is_global())
        return {s.get_name() for s in table.get_symbols() if outside(s)}.union(*map(walk, table.get_children()))

    return walk(symtable.symtable(source, "<reference>", "exec"))


def names_defined(source: str) -> set[str]:
    plain = re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.MULTILINE)
    names = set()
    for node in ast.walk(ast.parse(plain)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


# ---- notebooks ---------------------------------------------------------------------------------------------


@every_lesson
def test_notebook_is_built_and_keeps_the_rules(lesson: syllabus.LessonInfo):
    assert build.problems(lesson) == []


@every_lesson
def test_a_long_lesson_marks_one_good_place_to_stop(lesson: syllabus.LessonInfo):
    texts = [cell.source for cell in assemble.read(lesson.notebook).cells if cell.cell_type == "markdown"]
    assert sum(text.count("**A good place to stop.**") for text in texts) == (lesson.minutes >= 60)


@every_lesson
def test_four_files_have_the_lessons_name(lesson: syllabus.LessonInfo):
    for folder, name in [
        ("course_utils/lessons", f"{lesson.name}.py"),
        ("course_utils/exercises", f"{lesson.name}.py"),
        ("tests", f"test_{lesson.name}.py"),
    ]:
        assert (syllabus.ROOT / folder / name).exists(), f"{folder}/{name}"


@every_lesson
def test_notebook_has_every_exercise_once(lesson: syllabus.LessonInfo):
    cells = assemble.read(lesson.notebook).cells
    answers = [assemble.exercise_name(cell) for cell in cells if assemble.role(cell) == "answer"]
    assert answers == list(exercises_of(lesson.name))


@every_lesson
def test_exercises_say_how_long_they_take(lesson: syllabus.LessonInfo):
    """The text above an answer cell names the exercise and its minutes, as the exercise itself has them."""
    cells = assemble.read(lesson.notebook).cells
    for text, answer in pairwise(cells):
        if assemble.role(answer) == "answer":
            exercise = exercises_of(lesson.name)[assemble.exercise_name(answer)]
            assert f"**Exercise ({exercise.minutes} minutes): write `{exercise.name}`" in text.source


def pytest_nbval(path: Path) -> dict[str, str]:
    """Run the notebook under nbval without the course's plug-in: cell number -> outcome."""
    options = ["--nbval", "--nbval-current-env", "-rA", "--color=no", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", *options, path.name]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True)
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR|XFAIL|SKIPPED) \S+::Cell (\d+)", done.stdout, re.MULTILINE)
    assert outcomes, done.stdout + done.stderr
    return {number: outcome for outcome, number in outcomes}


@every_lesson
def test_unsolved_exactly_the_checks_fail(lesson: syllabus.LessonInfo, tmp_path: Path):
    """With plain nbval, as a learner or a teacher without our plug-in runs it. Lesson 00 whole, others without text."""
    notebook = assemble.read(lesson.notebook)
    if lesson.number:
        assemble.exercises_only(notebook)
    path = tmp_path / lesson.notebook.name
    nbformat.write(notebook, path)
    outcomes = pytest_nbval(path)
    roles = {str(n): assemble.role(cell) for n, cell in enumerate(assemble.code_cells(notebook))}
    assert outcomes == {n: "FAILED" if role == "check" else "PASSED" for n, role in roles.items()}
