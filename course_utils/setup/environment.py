"""The Python environment that the course runs in, and handing the work over to it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from course_utils.setup import NEWEST, OLDEST, SetupError, making, say
from course_utils.setup.state import Home, dotted, files, look_into, missing, pins, some
from course_utils.syllabus import ROOT


def activated() -> bool:
    """Whether the running Python belongs to an environment, venv or conda, that somebody has switched on."""
    conda = os.environ.get("CONDA_PREFIX")
    return sys.prefix != sys.base_prefix or (conda is not None and Path(conda).resolve() == Path(sys.prefix).resolve())


def find(root: Path, *, tests: bool, exact: bool) -> tuple[Path, str, str]:
    """The Python to run the course with: the running one if it has everything, else `.venv`'s.

    With it, what is wrong with it (`.venv` can then be made), and a remark for the learner. Unless the versions have
    to be `exact`ly the course's, the running one will also do with others, rather than that `.venv` is made.
    """
    home, running = Home(root), Path(sys.executable)
    flaw, remark = home.flaw(tests), ""
    if Path(sys.prefix).resolve() != home.folder.resolve() or home.read_stamp() is None:
        seen, wanted = look_into(running), pins(root, *files(tests))
        lacks = missing(seen, wanted)
        if not lacks:
            return running, "", ""
        if flaw and not exact and not missing(seen, wanted, exact=False):
            return running, "", f"The running Python is used. It has every package, though not {some(lacks)}."
        if activated():
            remark = f"The active environment lacks {some(lacks)}; the course uses its own, .venv."
    return home.python, flaw, remark


def prepare(root: Path = ROOT, *, tests: bool = False, cpu: bool = False, exact: bool = False) -> Path:
    """The Python that `find` names. `.venv` is made if that is needed."""
    python, flaw, remark = find(root, tests=tests, exact=exact)
    if remark:
        say(remark)
    if flaw:
        making.make(Home(root), tests, cpu)
    elif python == Home(root).python:
        Home(root).tidy()
    return python


def start_again(arguments: list[str], root: Path) -> int:
    """Runs the same command with the Python of `.venv`: the running one is not for the course.

    SetupError if that one is not either. It names one that is at hand, if there is.
    """
    home = Home(root)
    if not missing(home.look(), {}):
        return hand_over(home.python, ["-m", "course_utils", *arguments], dict(os.environ), Path.cwd())
    prefix = "py -3." if os.name == "nt" else "python3."
    at_hand = next((f"{prefix}{minor}" for minor in (13, 12, 11) if starts(f"{prefix}{minor}")), None)
    if at_hand:
        cure = f"There is another one on this computer:  {at_hand} -m course_utils {' '.join(arguments)}"
    else:
        cure = "Install one of them (python.org, your package manager, conda or pyenv) and run the command with it."
    here, oldest, newest = map(dotted, (sys.version_info[:2], OLDEST, NEWEST))
    raise SetupError(f"This is Python {here}. The course needs Python {oldest} to {newest}.\n{cure}")


def starts(call: str) -> bool:
    """Whether this calls a Python: pyenv puts names on the path that only print an error."""
    try:
        return subprocess.run([*call.split(), "-c", ""], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def child_environment(python: Path) -> dict[str, str]:
    """Variables for a program in the environment, as if it had been activated: `!pip` in a notebook finds its pip.

    The course's folder is on its path: any Python that has the packages can then run it.
    """
    variables = {key: value for key, value in os.environ.items() if key not in ("PYTHONHOME", "__PYVENV_LAUNCHER__")}
    for name, first in (("PATH", python.parent), ("PYTHONPATH", ROOT)):
        variables[name] = os.pathsep.join([str(first), *filter(None, [variables.get(name)])])
    if (python.parent.parent / "pyvenv.cfg").exists():
        variables["VIRTUAL_ENV"] = str(python.parent.parent)
    if not os.access(os.path.expanduser("~"), os.W_OK):  # matplotlib would write a warning below the first cell
        from course_utils.cache import cache_dir

        variables.setdefault("MPLCONFIGDIR", str(cache_dir() / "matplotlib"))
    return variables


def hand_over(python: Path, arguments: list[str], variables: dict[str, str], folder: Path = ROOT) -> int:
    """Runs `python arguments` in the repository and ends with its exit code.

    Where the system can, the program takes this one's place: Ctrl-C and every other signal reach it, and nothing is
    left behind. Windows waits instead, and leaves Ctrl-C to the program.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    command = [str(python), *arguments]
    if os.name == "posix":
        os.chdir(folder)
        os.execve(python, command, variables)
    process = subprocess.Popen(command, cwd=folder, env=variables)
    while process.poll() is None:
        with suppress(KeyboardInterrupt):
            process.wait()
    return process.returncode
