"""Making the course's own environment, `.venv`. What is not right is made anew: nothing is repaired.

It cannot be made under another name and renamed, since its scripts hold its path. So the old one makes room: it is
renamed, comes back when making the new one fails, and is deleted when the new one is right.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from course_utils.setup import CALL, SetupError, advice, say
from course_utils.setup.state import CONSTRAINTS, TESTS, Home, bare_environment, files, wishes

CPU_WHEELS = "https://download.pytorch.org/whl/cpu"


def locked(file: IO[str]) -> bool:
    """Tries to lock a file: False if another process has. Where the system has no locks, nobody has to wait."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, (BlockingIOError, PermissionError))
    return True


@contextmanager
def alone(root: Path) -> Generator[None]:
    """One command at a time makes the environment. The lock of a process ends with it, in whatever way it ends."""
    with open(root / ".venv.lock", "a") as file:
        if not locked(file):
            say("Another command is making the environment. This one waits for it.")
            while not locked(file):
                time.sleep(0.5)
        yield


def make_room(home: Home, stamp: dict | None) -> Callable[[], None]:
    """Moves what is in `.venv` out of the way, and returns what brings it back. What others made is never deleted.

    After a kill the half new one has an empty stamp, and the old one still waits beside it.
    """
    old = home.old
    if stamp is None and os.path.lexists(home.folder):
        names = (home.root / f".venv.yours{number}" for number in ("", *range(2, 1000)))
        old = next(name for name in names if not os.path.lexists(name))
        say(f"What was in .venv is yours. It is kept as it is, under the name {old.name}.")
    home.remove(home.folder if stamp == {} else home.old)
    if os.path.lexists(home.folder):
        os.replace(home.folder, old)

    def back() -> None:
        home.remove(home.folder)
        if os.path.lexists(old):
            os.replace(old, home.folder)
            say("What was in .venv before is there again.")

    return back


def run(command: list[str], root: Path) -> None:
    """Runs a command to its end; SetupError if it fails. Whatever ends us before, ends that command first.

    An installing pip has the screen for its standard output, so that its progress bars work.
    """
    out = None if "install" in command else subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=root, env=bare_environment(), stdout=out, stderr=subprocess.PIPE)
    lines = []
    try:
        for line in process.stderr or ():
            lines.append(line.decode(errors="replace").rstrip())
            print(lines[-1], file=sys.stderr, flush=True)
        code = process.wait()
    except BaseException:
        with suppress(subprocess.TimeoutExpired):
            process.wait(3)  # Ctrl-C in a terminal has reached it too; a signal to this process alone has not
        if process.poll() is None:
            process.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)
            process.wait()
        raise
    if code:
        raise SetupError(advice.failure(command, code, lines))


def announce(home: Home, cpu: bool) -> None:
    """Says before it starts what is downloaded, and what would make it less."""
    big = sys.platform == "linux" and not cpu
    size, disk = ("about 3 GB (PyTorch with CUDA)", 9) if big else ("about 550 MB", 3)
    say(f"Installing the course's packages into .venv. The first time this downloads {size}; Ctrl-C stops it.")
    if big and shutil.which("nvidia-smi") is None:
        say(f"This computer shows no NVIDIA GPU. `{CALL} lab --cpu` downloads far less.")
    free = shutil.disk_usage(home.root).free / 1e9
    if free < disk:
        say(f"The disk has {free:.1f} GB free; a full installation needs about {disk} GB.")


def commands(home: Home, adding: bool, tests: bool, cpu: bool) -> list[list[str]]:
    """What is run to fill `.venv`. pip has a command of its own: `venv` would hide why that fails.

    On PyTorch's own index of CPU wheels PyTorch is called 2.13.0+cpu. That satisfies `==2.13.0`, and of all that
    satisfies a pin pip takes the highest: 2.13.0+cpu sorts above 2.13.0 (PEP 440).
    """
    outside = getattr(sys, "_base_executable", None) or sys.executable  # `.venv` itself may be running this
    python, index = str(home.python), ["--extra-index-url", CPU_WHEELS] if cpu else []
    packages = [word for name in ([TESTS] if adding else files(tests)) for word in ("-r", name)]
    fill = [python, "-m", "pip", "install", "--disable-pip-version-check", *index, "-c", CONSTRAINTS, *packages]
    new = [[outside, "-m", "venv", "--without-pip", str(home.folder)], [python, "-m", "ensurepip", "--default-pip"]]
    return [fill] if adding else [*new, fill]


def make(home: Home, tests: bool, cpu: bool) -> None:
    """Makes `.venv` right, whatever it is now. SetupError or OSError if that cannot be done."""
    with alone(home.root):
        flaw = home.flaw(tests)
        if flaw:  # else another command has just made it
            make_alone(home, tests, cpu, flaw)


def make_alone(home: Home, tests: bool, cpu: bool, flaw: str) -> None:
    stamp, before = home.read_stamp(), home.look()
    known = stamp or {}
    tests, cpu = tests or TESTS in known, cpu or known.get("cpu") is True  # once chosen, always kept
    adding = bool(known) and not home.flaw(tests=False)
    if adding:
        say(f"Installing what {TESTS} asks for into .venv, about 80 MB.")
    else:
        say(f"The environment .venv {flaw}. It is made now.")
        announce(home, cpu)
    back = partial(home.write_stamp, known) if adding else make_room(home, stamp)
    try:
        home.folder.mkdir(exist_ok=True)
        home.write_stamp({})  # killed from here on, it counts as unfinished
        for command in commands(home, adding, tests, cpu):
            run(command, home.root)
        home.write_stamp({**wishes(home.root, tests), "cpu": cpu})
        flaw = home.flaw(tests)
        if flaw:
            raise SetupError(
                f"pip has finished, but .venv still {flaw}.\n"
                "A setting may send packages elsewhere (target, prefix): `python3 -m pip config list` shows it."
            )
    except BaseException:
        back()
        raise
    home.tidy()
    say("The environment is ready.")
    after = home.look()
    if known and before and after:
        own = [f"{name}=={version}" for name, version in before["packages"].items() if name not in after["packages"]]
        if own:
            again = f'"{home.python}" -m pip install {" ".join(own)}'
            say(f"The old one also had other packages. To have them again:\n    {again}")
