"""`python -m course_utils doctor`: what is installed, what is missing, and the command that puts it right.

The packages are looked at by a second process, inside the environment: a package that crashes on import crashes
there, and this one tells of it.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from course_utils.setup import CALL, SetupError, say
from course_utils.setup.environment import child_environment, find
from course_utils.setup.state import Home
from course_utils.setup.version import version
from course_utils.syllabus import LESSONS, ROOT

PACKAGES = ["torch", "triton", "numpy", "matplotlib", "jupyterlab", "nbval", "jaxtyping", "sacrebleu", "ipykernel"]
SIGN = "course-doctor:"


# ---- inside the environment ----------------------------------------------------------------------------------------


def guarded(question: Callable[[], str]) -> str:
    """The answer, or the error in one line: some packages answer an import with a page."""
    try:
        return question()
    except BaseException as error:
        first = (str(error).strip().splitlines() or [""])[0]
        return f"{type(error).__name__}: {first}"[:160]


def try_import(name: str) -> tuple[str | None, str]:
    """Version and error of a package. The version is None if it is not installed."""
    from importlib import metadata

    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return None, ""
    return found, guarded(lambda: importlib.import_module(name) and "")


def device() -> str:
    """The best device that PyTorch has here, in words."""
    import torch

    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        return f"CUDA: {card.name}, {card.total_memory / 2**30:.0f} GiB"
    return "MPS (Apple)" if torch.backends.mps.is_available() else "CPU"


def triton_mode() -> str:
    """How lesson 15's kernels run on this system."""
    if sys.platform != "linux":
        return "not available on this system (Linux only); lesson 15 still runs"
    import triton  # noqa: F401  # the error, if any, is the answer

    return "compiled on the GPU" if device().startswith("CUDA") else "interpreter on the CPU"


def look_inside() -> None:
    """Writes what this environment has, as the last line. Called in the environment's own Python."""
    packages = {name: try_import(name) for name in PACKAGES}
    answer = {
        "python": platform.python_version(),
        "packages": packages,
        "device": guarded(device),
        "Triton": guarded(triton_mode),
    }
    print(SIGN + json.dumps(answer), flush=True)


# ---- outside: the report -------------------------------------------------------------------------------------------


def ask(python: Path) -> dict:
    """What `look_inside` says in the environment of `python`; an "error" if that process dies."""
    command = [str(python), "-c", "from course_utils.setup.doctor import look_inside; look_inside()"]
    variables = child_environment(python)
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, errors="replace", timeout=180)
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": str(error)}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(SIGN):
            return json.loads(line[len(SIGN) :])
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {"error": f"the packages could not be looked at (exit code {done.returncode}): {last}"}


def cache_line() -> str:
    from course_utils.cache import cache_dir

    folder = cache_dir()
    return f"{folder} ({sum(file.stat().st_size for file in folder.rglob('*') if file.is_file()) / 1e6:.1f} MB)"


def lessons_line(root: Path) -> str:
    here = [f"{lesson.number:02d}" for lesson in LESSONS if (root / "notebooks" / lesson.notebook.name).exists()]
    return f"{', '.join(here) or 'none'} ({len(LESSONS) - len(here)} not in this version)"


def owner_line(root: Path) -> str:
    """Where the placeholder OWNER still stands for the name of whoever publishes the course."""
    files = [name for name in ("LICENSE", "CITATION.cff", "pyproject.toml") if "OWNER" in (root / name).read_text()]
    return f"not yet set: write the name for OWNER in {', '.join(files)}" if files else "set"


def choose(root: Path) -> tuple[Path, list[tuple[str, str]]]:
    """The Python that `lab` would use, and what is wrong with it, with the command that puts it right."""
    try:
        python, flaw, _ = find(root, tests=False, exact=True)
        _, more, _ = find(root, tests=True, exact=True)
    except SetupError as error:
        return Path(sys.executable), [(str(error), "git status")]
    problems = [(f"The environment .venv {flaw}", f"{CALL} lab")] if flaw else []
    if more and not flaw:
        problems = [(f"For `test` only: .venv {more}", f"{CALL} test")]
    return (python if Home(root).look() or not flaw else Path(sys.executable)), problems


def examine(root: Path = ROOT) -> int:
    """Prints the report. It answers questions and judges nobody: the exit code is always 0."""
    python, problems = choose(root)
    report = ask(python)
    lines = {
        "course": lambda: f"{version()}, {root}",
        "system": lambda: f"{platform.platform()}, {platform.machine()}, {os.cpu_count()} CPU cores",
        "Python": lambda: f"{report.get('python', 'unknown')}, {python}",
        "device": lambda: report.get("device") or report["error"],
        "Triton": lambda: report.get("Triton", "unknown"),
        "cache": cache_line,
        "lessons": lambda: lessons_line(root),
        "owner": lambda: owner_line(root),
    }
    for label, question in lines.items():
        say(f"{label:<10}{guarded(question)}")
    for name, (found, error) in report.get("packages", {}).items():
        say(f"  {name:<12}{found or 'not installed'}{f'   BROKEN  {error}' if error else ''}")
        if error:
            cure = f'"{python}" -m pip install --force-reinstall --no-deps {name}=={found}'
            problems.append((f"{name} {found} is broken: {error}", cure))
    say("\nWhat to do:" if problems else "\nNothing is missing.")
    for words, command in problems:
        say(f"  {words}\n      {command}")
    return 0
