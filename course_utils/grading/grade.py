"""`python -m course_utils grade`: the points of each exercise in a learner's notebooks, and what was not used."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from course_utils.grading import pytest_variables
from course_utils.syllabus import ROOT

CELL_SECONDS = 300
_OPTIONS = ["-q", "-p", "course_utils.grading.nbval_plugin", "-p", "no:cacheprovider", "--nbval"]
_OPTIONS += ["--color=no", f"--nbval-cell-timeout={CELL_SECONDS}"]


class NotGraded(Exception):
    """The notebook has no result. The message says why."""


def main(names: list[str], jobs: int = 1) -> int:
    """Grade the notebooks, `jobs` of them at a time, and print their tables in order. 1 if one has no result."""
    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        for name, result in zip(names, pool.map(_table_or_error, map(Path, names)), strict=True):
            print(f"{Path(name).name}:", flush=True)
            if isinstance(result, NotGraded):
                failed = 1
                print(f"  {result}", file=sys.stderr, flush=True)
            else:
                print("\n".join(result), flush=True)
    return failed


def _table_or_error(path: Path) -> list[str] | NotGraded:
    try:
        return list(table(run(path)))
    except NotGraded as error:
        return error


def run(path: Path) -> dict[str, Any]:
    """Run the lesson that the notebook belongs to with its answers: the report of the plug-in.

    Raises NotGraded when the notebook cannot be read, is no lesson, or when the run leaves no verdict.
    """
    if not path.exists():
        raise NotGraded(f"There is no file {path}.")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        arguments = [*_OPTIONS, "--answers", str(path.absolute()), "--report", str(file)]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=ROOT / "notebooks",
            env=pytest_variables(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        try:
            report = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            report = {}
    if "error" in report:
        raise NotGraded(f"{report['error']}.")
    if not report.get("exercises"):
        last = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise NotGraded(f"The run left no verdict (exit code {done.returncode}). Its end:\n{last}")
    return report


def table(report: dict[str, Any]) -> Iterator[str]:
    """A line for each exercise, the total, then what was not used and what ended in an error."""
    errors = dict(reversed(report["errors"]))  # of each cell the first
    width = max([len("total"), *(len(one["name"]) for one in report["exercises"])])
    for one in report["exercises"]:
        verdict, points = ("passed", one["points"]) if one["passed"] else ("failed", 0)
        own = errors.pop(f"the answer cell of {one['name']}", None)
        message = f"its cell: {own}" if own else one["message"]
        note = "" if one["passed"] else f"   {message}"
        yield f"  {one['name']:<{width}}   {verdict}   {points:>3g} of {one['points']:g}{note}".rstrip()
    yield f"  {'total':<{width}}            {report['points']:>3g} of {report['total']:g}"
    for cell, error in errors.items():
        yield f"  {cell}: {error}"
    for note in report["notes"]:
        yield f"  {note}"
