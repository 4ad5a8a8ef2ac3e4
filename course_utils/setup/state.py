"""What the course needs, and what a Python has: the one that runs, or that of the course's own environment, `.venv`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from course_utils.setup import NEWEST, OLDEST, SetupError

LEARNER, TESTS, CONSTRAINTS = "requirements.txt", "tests/requirements.txt", "constraints.txt"


def dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def supported(version: Sequence[int]) -> bool:
    return OLDEST <= tuple(version) <= NEWEST


def some(things: list[str]) -> str:
    return things[0] + (f" and {len(things) - 1} more" if len(things) > 1 else "")


# ---- what is wanted ------------------------------------------------------------------------------------------------


def files(tests: bool) -> list[str]:
    """The files with what is to be installed."""
    return [LEARNER, TESTS] if tests else [LEARNER]


def lines_of(root: Path, *names: str) -> list[str]:
    """The lines of requirement files, without comments. SetupError if a file is not there."""
    try:
        lines = "\n".join((root / name).read_text(encoding="utf-8") for name in names).splitlines()
    except FileNotFoundError as error:  # as in a course that was installed as a package
        raise SetupError(
            f"{error.filename} is not there. Run this command in the course's folder, as git cloned it."
        ) from None
    return list(filter(None, (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines)))


def wishes(root: Path, tests: bool) -> dict[str, str]:
    """The stamp of a right `.venv`: for which folder it was made (its scripts hold the path), and from which files."""
    wanted = {"folder": str(root.resolve())}
    for name in [CONSTRAINTS, *files(tests)]:
        wanted[name] = hashlib.sha256("\n".join(lines_of(root, name)).encode()).hexdigest()
    return wanted


def pins(root: Path, *names: str) -> dict[str, str]:
    """Package and version of each line `name==version; sys_platform == "linux"` that applies to this system."""
    pattern = r"([\w.-]+)==([^\s;]+)(?:\s*;\s*sys_platform == \"(\w+)\")?"
    found = filter(None, (re.match(pattern, line) for line in lines_of(root, *names)))
    return {plain(match[1]): match[2] for match in found if match[3] in (None, sys.platform)}


def plain(name: str) -> str:
    """A package's name as it is compared: pytest-xdist is pytest_xdist."""
    return re.sub(r"[-_.]+", "-", name).lower()


# ---- what is there -------------------------------------------------------------------------------------------------

# pip writes RECORD last: a package without it is half there.
LOOK = """
import json, pathlib, sys
records = [record for folder in sys.path if folder for record in pathlib.Path(folder).glob("*.dist-info/RECORD")]
packages = dict(record.parent.name[:-len(".dist-info")].split("-")[:2] for record in reversed(records))
print(json.dumps({"prefix": sys.prefix, "version": sys.version_info[:2], "packages": packages}))
"""


def bare_environment() -> dict[str, str]:
    """Our environment variables without those that would show one Python the packages of another.

    pip's own variables (PIP_INDEX_URL, PIP_FIND_LINKS …) are passed on. Only `--user` installs are switched off:
    pip refuses them in a virtual environment. And pip must refuse to run outside one: a damaged `.venv` whose Python
    takes itself for the system's would otherwise change the system.
    """
    hidden = {"PYTHONHOME", "PYTHONPATH", "__PYVENV_LAUNCHER__"}
    kept = {key: value for key, value in os.environ.items() if key not in hidden}
    return {**kept, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "1"}


def look_into(python: Path) -> dict | None:
    """What a Python has, asked by a short program that it runs itself; None if it does not run."""
    command, variables = [str(python), "-c", LOOK], bare_environment()
    try:
        done = subprocess.run(command, env=variables, cwd=tempfile.gettempdir(), capture_output=True, timeout=60)
        seen = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, LookupError):
        return None
    return {**seen, "packages": {plain(name): version for name, version in seen["packages"].items()}}


def missing(seen: dict | None, wanted: dict[str, str], exact: bool = True) -> list[str]:
    """What this Python has not, in words: torch 2.13.0+cpu is torch 2.13.0. Not `exact`: any version will do.

    The course itself is never missing: its folder is on the path of every program that we start.
    """
    if seen is None or not supported(seen["version"]):
        return [f"a Python {dotted(OLDEST)} to {dotted(NEWEST)} that runs"]
    found = []
    for name, version in wanted.items():
        there = seen["packages"].get(name)
        if there is None:
            found.append(f"{name}=={version} (not installed)")
        elif exact and version not in (there, there.partition("+")[0]):
            found.append(f"{name}=={version} ({there} is installed)")
    return found


class Home:
    """The course's own environment, and the names beside it."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / ".venv"
        # Never resolved: the link's target is the Python outside the environment.
        self.python = self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self.stamp = self.folder / ".course.json"
        self.old, self.waste = root / ".venv.old", root / ".venv.waste"

    def read_stamp(self) -> dict | None:
        """The stamp. Empty: the environment is unfinished. None: somebody else made it, or there is none."""
        try:
            stamp = json.loads(self.stamp.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError):
            return {}
        return stamp if isinstance(stamp, dict) else {}

    def write_stamp(self, stamp: dict) -> None:
        from course_utils.cache import write_atomically

        write_atomically(self.stamp, json.dumps(stamp, indent=1).encode())

    def look(self) -> dict | None:
        """What `.venv` has; None if its Python does not run, or takes itself for another (without pyvenv.cfg)."""
        seen = look_into(self.python)
        return seen if seen and Path(seen["prefix"]).resolve() == self.folder.resolve() else None

    def flaw(self, tests: bool) -> str:
        """Why `.venv` is not right, in words that go on after "it"; empty if it is right.

        With which of the course's Pythons it was made, and which one runs now, makes no difference.
        """
        stamp, wanted = self.read_stamp(), wishes(self.root, tests)
        if not os.path.lexists(self.folder):
            return "is not there yet"
        if stamp == {}:
            return "was not finished"
        for key, value in wanted.items():
            old = value if stamp is None else stamp.get(key)
            if old is None:
                return f"was made without {key}"
            if old != value:
                return f"was made for another {key}" + (f", {old}" if key == "folder" else "")
        lacks = missing(self.look(), pins(self.root, *files(tests)))
        return ("was not made by this course, and " if stamp is None else "") + f"lacks {some(lacks)}" if lacks else ""

    def remove(self, folder: Path) -> None:
        """Deletes a folder under another name: cut off in the middle, its rest must not be taken for anything."""
        if os.path.lexists(folder):
            shutil.rmtree(self.waste, ignore_errors=True)
            os.replace(folder, self.waste)
        shutil.rmtree(self.waste, ignore_errors=True)

    def tidy(self) -> None:
        """Deletes what is superfluous beside a right `.venv`, if that can be done."""
        with suppress(OSError):
            self.remove(self.old)
