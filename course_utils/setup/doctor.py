"""`python -m course_utils doctor`: what is installed, what is missing, and the command that puts it right.

A second process, inside the environment, looks and reports: a package that crashes on import crashes there, and this
one tells of it.
"""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from course_utils.setup import CALL, SetupError, say
from course_utils.setup.environment import child_environment, find
from course_utils.setup.version import version
from course_utils.syllabus import LESSONS, ROOT

# What the course needs, and the name under which Python imports it.
_SAME = ("torch", "triton", "numpy", "matplotlib", "jupyterlab", "nbval", "jaxtyping", "sacrebleu", "ipykernel")
PACKAGES = {name: name for name in _SAME} | {"scikit-learn": "sklearn"}
BROKEN = 3  # the exit code that tells of a broken package


# ---- inside the environment ----------------------------------------------------------------------------------------


def guarded(question: Callable[[], object]) -> str:
    """The answer, or the error in one line: some packages answer an import with a page."""
    try:
        return str(question() or "")
    except BaseException as error:
        first = (str(error).strip().splitlines() or [""])[0]
        return f"{type(error).__name__}: {first}"[:160]


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


def cache_line() -> str:
    from course_utils.cache import cache_dir

    folder = cache_dir()
    return f"{folder} ({sum(file.stat().st_size for file in folder.rglob('*') if file.is_file()) / 1e6:.1f} MB)"


def lessons_line() -> str:
    here = [f"{lesson.number:02d}" for lesson in LESSONS if lesson.notebook.exists()]
    return f"{', '.join(here) or 'none'} ({len(LESSONS) - len(here)} not in this version)"


def owner_line() -> str:
    """Where the placeholder OWNER still stands for the name of whoever publishes the course."""
    files = [name for name in ("LICENSE", "CITATION.cff", "pyproject.toml") if "OWNER" in (ROOT / name).read_text()]
    return f"not yet set: write the name for OWNER in {', '.join(files)}" if files else "set"


def report() -> int:
    """Prints what this environment has; BROKEN if that has to be repaired. Run by the environment's own Python."""
    from importlib import metadata

    lines = {
        "course": lambda: f"{version()}, {ROOT}",
        "system": lambda: f"{platform.platform()}, {platform.machine()}, {os.cpu_count()} CPU cores",
        "Python": lambda: f"{platform.python_version()}, {sys.executable}",
        "device": device,
        "Triton": triton_mode,
        "cache": cache_line,
        "lessons": lessons_line,
        "owner": owner_line,
    }
    for label, question in lines.items():
        say(f"{label:<10}{guarded(question)}")
    code = 0
    for name, module in PACKAGES.items():
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            say(f"  {name:<14}not installed")
            continue
        error = guarded(lambda module=module: importlib.import_module(module) and None)
        say(f"  {name:<14}{found}{f'   BROKEN  {error}' if error else ''}")
        if error:
            code = BROKEN
            say(f'      "{sys.executable}" -m pip install --force-reinstall --no-deps {name}=={found}')
    return code


# ---- outside -------------------------------------------------------------------------------------------------------


def look_inside(python: Path) -> str:
    """Lets the environment of this Python report. Returns what is wrong with it, in words."""
    command = [str(python), "-c", "import sys; from course_utils.setup.doctor import report; sys.exit(report())"]
    variables = {**child_environment(python), "PYTHONIOENCODING": ":replace"}
    try:
        done = subprocess.run(command, env=variables, stderr=subprocess.PIPE, timeout=180)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if done.returncode in (0, BROKEN):
        return "The lines above name what is broken, and the command that installs it again." if done.returncode else ""
    last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
    return f"The packages could not be looked at (exit code {done.returncode}): {last}"


def examine(root: Path = ROOT) -> int:
    """Prints the report, and what to do. It answers questions and judges nobody: the exit code is always 0."""
    python, advice = Path(sys.executable), []
    try:
        for verb, words in (("test", "For `test` only:"), ("lab", "The environment")):
            python, flaw, _ = find(root, tests=verb == "test", exact=True)
            if flaw:
                advice = [f"{words} .venv {flaw}\n      {CALL} {verb}"]
    except SetupError as error:
        advice = [str(error)]
    broken = look_inside(python if python.exists() else Path(sys.executable))
    advice += [broken] if broken else []
    say("\n  ".join(["\nWhat to do:", *advice]) if advice else "\nNothing is missing.")
    return 0
