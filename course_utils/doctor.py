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

from course_utils import environment
from course_utils.environment import CALL, LEARNER, TESTS, Home, Requirement, dotted, say
from course_utils.syllabus import LESSONS, ROOT

PACKAGES = [
    "torch",
    "triton",
    "numpy",
    "matplotlib",
    "jupyterlab",
    "nbval",
    "jaxtyping",
    "sacrebleu",
    "IPython",
    "ipykernel",
]
SIGN = "course-doctor:"


# ---- inside the environment ----------------------------------------------------------------------------------------


def one_line(error: BaseException) -> str:
    """The error in one line: some packages answer an import with a page."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:160]


def try_import(name: str) -> tuple[str | None, str | None]:
    """Version and error of one package. Both None: it is not installed."""
    from importlib import metadata

    try:
        version = metadata.version(name)
    except Exception:
        return None, None
    try:
        importlib.import_module(name)
    except BaseException as error:
        return version, one_line(error)
    return version, None


def device() -> str:
    """The best device that PyTorch has here, in words."""
    import torch

    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        return f"CUDA: {card.name}, {card.total_memory / 2**30:.0f} GiB"
    if torch.backends.mps.is_available():
        return "MPS (Apple)"
    return "CPU"


def triton_mode(broken: str | None) -> str:
    """How lesson 15's kernels run on this system."""
    import torch

    if sys.platform != "linux":
        return "not available on this system (Linux only); lesson 15 still runs"
    if broken is not None:
        return "does not work here"
    return "compiled on the GPU" if torch.cuda.is_available() else "interpreter on the CPU"


def guarded(question: Callable[[], str]) -> str:
    try:
        return question()
    except BaseException as error:
        return f"unknown ({one_line(error)})"


def look_inside() -> None:
    """Writes what this environment has, as the last line. Called in the environment's own Python."""
    found = {name: try_import(name) for name in PACKAGES}
    version, error = found["triton"]
    broken = "not installed" if version is None else error
    answer = {"packages": found, "device": guarded(device), "triton": guarded(lambda: triton_mode(broken))}
    print(SIGN + json.dumps(answer), flush=True)


# ---- outside: the report -------------------------------------------------------------------------------------------


def ask(python: Path) -> dict:
    """What `look_inside` says in the environment of `python`; an "error" if that process dies."""
    command = [str(python), "-c", "from course_utils.doctor import look_inside; look_inside()"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", errors="replace", timeout=180
        )
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": one_line(error)}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(SIGN):
            return json.loads(line[len(SIGN) :])
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {"error": f"the packages could not be looked at (exit code {done.returncode}): {last}"}


def choose(root: Path, requirements: list[Requirement]) -> tuple[Path, bool]:
    """The environment that `lab` would use, and whether it is the course's own; else the running Python."""
    active = environment.active_python(root)
    if active is not None:
        snapshot = environment.look_into(active, requirements)
        if snapshot is not None and not environment.lacking(snapshot, requirements, root):
            return active, False
    home = Home(root)
    if home.look([]) is not None:
        return home.python, True
    return Path(sys.executable), False


def size_of(folder: Path) -> str:
    total = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return f"{total / 1e6:.1f} MB"


def cache_line() -> str:
    from course_utils.cache import cache_dir

    folder = Path(cache_dir())
    return f"{folder} ({size_of(folder) if folder.exists() else 'empty'})"


def lessons_line(root: Path) -> str:
    here = [f"{lesson.number:02d}" for lesson in LESSONS if (root / "notebooks" / lesson.notebook.name).exists()]
    absent = len(LESSONS) - len(here)
    text = ", ".join(here) if here else "none"
    return f"{text} ({absent} not in this version)" if absent else text


def pin_problems(root: Path, python: Path, own: bool, set_up: bool) -> list[tuple[str, str]]:
    """What is missing or differs from the pins, each with the command that puts it right."""
    problems = []
    for file, verb in ((LEARNER, "lab"), (TESTS, "test")):
        try:
            requirements = environment.read_requirements([root / file])
        except OSError:
            problems.append((f"{file} is not there", "git status      (in the folder of the course)"))
            continue
        snapshot = environment.look_into(python, requirements)
        missing = ["its Python does not run"] if snapshot is None else environment.lacking(snapshot, requirements, root)
        for words in missing:
            # What the tests need is no fault where a learner only reads the lessons.
            needed = "" if verb == "lab" else ", needed for `test` only"
            pin = words.split(" (")[0]
            by_hand = f'"{python}" -m pip install {"-e ." if pin == "course_utils" else pin}'
            problems.append((words + needed, f"{CALL} {verb}" if own or not set_up else by_hand))
    return problems


def broken_packages(report: dict, python: Path) -> list[tuple[str, str]]:
    """Packages that are installed but fail on import."""
    return [
        (f"{name} {version} is broken: {error}", f'"{python}" -m pip install --force-reinstall {name}=={version}')
        for name, (version, error) in report.get("packages", {}).items()
        if error
    ]


def print_packages(report: dict) -> None:
    if "error" in report:
        say(f"  {report['error']}")
    for name, (version, error) in report.get("packages", {}).items():
        say(f"  {name:<12}{version or 'not installed'}{f'   BROKEN  {error}' if error else ''}")


def line(label: str, question: Callable[[], str]) -> None:
    say(f"{label:<14}{guarded(question)}")


def examine(root: Path = ROOT) -> int:
    """Prints the report. It answers questions and judges nobody: the exit code is always 0."""
    requirements = environment.read_requirements([root / LEARNER]) if (root / LEARNER).is_file() else []
    python, own = choose(root, requirements)
    snapshot = environment.look_into(python, requirements)
    set_up = snapshot is not None and not environment.lacking(snapshot, requirements, root)
    line("Python", lambda: f"{dotted(snapshot.version) if snapshot else 'does not run'}, {python}")
    line("system", lambda: f"{platform.platform()}, {platform.machine()}")
    line("CPU cores", lambda: str(os.cpu_count()))
    if not set_up and not own:
        say(f"environment   not set up yet; `{CALL} lab` does it. What the running Python has:")
    else:
        say(f"environment   {python.parent.parent}")
    report = ask(python)
    print_packages(report)
    line("device", lambda: report.get("device", "unknown"))
    line("Triton", lambda: report.get("triton", "unknown"))
    line("cache", cache_line)
    line("lessons", lambda: lessons_line(root))
    problems = broken_packages(report, python)
    if set_up or own:
        problems += pin_problems(root, python, own, set_up)
    else:
        problems.append(("the environment is not set up", f"{CALL} lab"))
    if snapshot is not None and not environment.supported(snapshot.version):
        problems.append((f"Python {dotted(snapshot.version)} is not 3.11 to 3.13", "python3.12 -m course_utils lab"))
    say("\nNothing is missing." if not problems else "\nWhat to do:")
    for words, command in problems:
        say(f"  {words}\n      {command}")
    return 0
