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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from course_utils.setup import CALL, SetupError, advice, say
from course_utils.setup.state import CONSTRAINTS, LEARNER, TESTS, Home, bare_environment, pins, wishes

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
def alone(root: Path) -> Iterator[None]:
    """One command at a time makes the environment. The lock of a process ends with it, in whatever way it ends."""
    with open(root / ".venv.lock", "a") as file:
        if not locked(file):
            say("Another command is making the environment. This one waits for it.")
            while not locked(file):
                time.sleep(0.5)
        yield


@contextmanager
def replacing(home: Home) -> Iterator[None]:
    """An empty `.venv`, to be filled. On any error the old one comes back. What others made is never deleted.

    After a kill the half new one has an empty stamp, and the old one still waits beside it.
    """
    stamp, old = home.read_stamp(), home.old
    try:
        if stamp is None and os.path.lexists(home.folder):
            names = (home.root / f".venv.yours{number}" for number in ("", *range(2, 1000)))
            old = next(name for name in names if not os.path.lexists(name))
            say(f"What was in .venv is yours. It is kept as it is, under the name {old.name}.")
        home.remove(home.folder if stamp == {} else home.old)
        if os.path.lexists(home.folder):
            os.replace(home.folder, old)
    except OSError as error:
        raise SetupError(
            f"{home.folder} cannot make room for a new environment: {error}\n"
            "Close every program that uses it (JupyterLab, an editor, a terminal), and run the command again."
        ) from None
    try:
        home.folder.mkdir()
        home.write_stamp({})
        yield
    except BaseException:
        home.remove(home.folder)
        if os.path.lexists(old):
            os.replace(old, home.folder)
            say("What was in .venv before is there again.")
        raise
    home.tidy()


@contextmanager
def adding(home: Home) -> Iterator[None]:
    """A `.venv` that is right for the lessons, to get more. If pip fails or is stopped, it is still right for them."""
    stamp = home.read_stamp() or {}
    home.write_stamp({})  # killed meanwhile, it counts as unfinished
    try:
        yield
    except BaseException:
        home.write_stamp(stamp)
        raise


def run(command: list[str], root: Path) -> None:
    """Runs a command to its end; SetupError if it fails. Whatever ends us before, ends that command first.

    An installing pip has the screen for its standard output, so that its progress bars work, and its errors are shown.
    """
    loud = "install" in command
    out, err = (None, subprocess.PIPE) if loud else (subprocess.PIPE, subprocess.STDOUT)
    variables = bare_environment()
    process = subprocess.Popen(command, cwd=root, env=variables, stdout=out, stderr=err, text=True, errors="replace")
    lines = []
    try:
        for line in process.stderr or process.stdout or ():
            lines.append(line.rstrip())
            if loud:
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
    size, disk = ("about 3 GB (PyTorch with CUDA)", 9) if big else ("about 500 MB", 3)
    say(f"Installing the course's packages into .venv. The first time this downloads {size}; Ctrl-C stops it.")
    if big and shutil.which("nvidia-smi") is None:
        say(f"This computer shows no NVIDIA GPU. `{CALL} lab --cpu` downloads far less.")
    free = shutil.disk_usage(home.root).free / 1e9
    if free < disk:
        say(f"The disk has {free:.1f} GB free; a full installation needs about {disk} GB.")


def pip_install(home: Home, *arguments: str) -> list[str]:
    """With the versions of the constraints for what packages need in turn."""
    return [str(home.python), "-m", "pip", "install", "--disable-pip-version-check", "-c", CONSTRAINTS, *arguments]


def steps(home: Home, wanted: dict[str, str], cpu: bool) -> list[list[str]]:
    """The commands that fill an empty `.venv`. pip has a command of its own: `venv` would hide why that fails.

    `--cpu` takes PyTorch first, and alone, with PyTorch's own index of CPU wheels as a further place to look. There it
    is called 2.13.0+cpu. That satisfies `==2.13.0`, and of all that satisfies a pin pip takes the highest: 2.13.0+cpu
    sorts above 2.13.0 (PEP 440). The last command then finds PyTorch in place.
    """
    outside = getattr(sys, "_base_executable", None) or sys.executable  # `.venv` itself may be running this
    torch = pins(home.root, LEARNER).get("torch") if cpu else None
    return [
        [outside, "-m", "venv", "--without-pip", str(home.folder)],
        [str(home.python), "-m", "ensurepip", "--default-pip"],
        *([pip_install(home, "--no-deps", "--extra-index-url", CPU_WHEELS, f"torch=={torch}")] if torch else []),
        pip_install(home, "-r", LEARNER, *(["-r", TESTS] if TESTS in wanted else [])),
    ]


def make(home: Home, wanted: dict[str, str], cpu: bool) -> None:
    """Makes `.venv` right, whatever it is now. SetupError, with a cure, if that cannot be done."""
    try:
        with alone(home.root):
            flaw = home.flaw(wanted)
            if flaw:  # else another command has just made it
                make_alone(home, wanted, cpu, flaw)
    except OSError as error:
        cure = advice.for_text(str(error))
        raise SetupError(f"The environment {home.folder} cannot be made: {error}\n{cure}") from None


def make_alone(home: Home, wanted: dict[str, str], cpu: bool, flaw: str) -> None:
    stamp, before = home.read_stamp() or {}, home.look()
    wanted = wishes(home.root, tests=TESTS in {**stamp, **wanted})
    cpu = cpu or stamp.get("cpu") is True  # who once chose the CPU's PyTorch keeps it
    if home.stale(wanted) == [TESTS] and not home.flaw(wishes(home.root, tests=False)):
        commands, manner = [pip_install(home, "-r", TESTS)], adding(home)
        say(f"Installing what {TESTS} asks for into .venv, about 60 MB.")
    else:
        commands, manner = steps(home, wanted, cpu), replacing(home)
        say(f"The environment .venv {flaw}. It is made now.")
        announce(home, cpu)
    with manner:
        for command in commands:
            run(command, home.root)
        home.write_stamp({**wanted, "cpu": cpu})
        flaw = home.flaw(wanted)
        if flaw:
            raise SetupError(
                f"pip has finished, but .venv still {flaw}.\n"
                "A setting may send packages elsewhere (target, prefix): `python3 -m pip config list` shows it."
            )
    say("The environment is ready.")
    after = home.look()
    if stamp and before and after:
        own = [f"{name}=={version}" for name, version in before["packages"].items() if name not in after["packages"]]
        if own:
            again = f'"{home.python}" -m pip install {" ".join(own)}'
            say(f"The old one also had other packages. To have them again:\n    {again}")
