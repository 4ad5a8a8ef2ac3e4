"""What tools find in all code of the package and of the tests: its form, usual mistakes, types that do not agree."""

import subprocess
import sys

import pytest

from course_utils.syllabus import ROOT

TOOLS = {
    "format": ["ruff", "format", "--diff", "course_utils", "tests"],
    "mistakes": ["ruff", "check", "course_utils", "tests"],
    # Warnings count too. The packages are those of this environment, wherever the program would look for them.
    "types": ["pyrefly", "check", "--min-severity", "warn", "--python-interpreter-path", sys.executable],
}


@pytest.mark.parametrize("name", TOOLS)
def test_nothing_is_found(name: str) -> None:
    command = [sys.executable, "-m", *TOOLS[name]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
