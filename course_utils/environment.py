"""Finding, making and repairing the Python environment that the course runs in.

Standard library only, and written so that an older Python can still read it: it is this file that tells a learner
that their Python is too old.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from course_utils.syllabus import ROOT

LEARNER = "requirements.txt"
TESTS = "tests/requirements.txt"
OLDEST, NEWEST = (3, 11), (3, 13)
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
CALL = "python -m course_utils" if os.name == "nt" else "python3 -m course_utils"


class SetupError(Exception):
    """Something the learner can put right. The message says what happened and what to do."""


def say(text: str) -> None:
    """Prints at once, so that our lines and those of the programs we start stay in order."""
    print(text, flush=True)


# ---- what is wanted ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Requirement:
    """A line of a requirements file. `pin` is None where any version will do."""

    name: str
    pin: str | None = None
    editable: bool = False

    def __str__(self) -> str:
        return f"{self.name}=={self.pin}" if self.pin else self.name


LINE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^]]*\])?\s*(?P<specifier>[^;]*)(?:;(?P<marker>.*))?$")
MARKER = re.compile(r"(\w+)\s*(==|!=)\s*([\"'])(.*?)\3")


def marker_holds(marker: str) -> bool:
    """Whether `sys_platform == "linux"` (joined by `and`) is true here. What we cannot read we leave to pip: False."""
    known = {
        "sys_platform": sys.platform,
        "platform_system": platform.system(),
        "platform_machine": platform.machine(),
        "os_name": os.name,
    }
    for clause in marker.split(" and "):
        match = MARKER.fullmatch(clause.strip())
        if match is None or match[1] not in known:
            return False
        if (known[match[1]] == match[4]) != (match[2] == "=="):
            return False
    return True


def parse_requirements(text: str) -> list[Requirement]:
    """The requirements that apply to this system. Options (lines that begin with `-`) other than `-e .` are pip's."""
    found = []
    for raw in text.splitlines():
        line = re.sub(r"(^|\s)#.*", "", raw).strip()
        if re.fullmatch(r"(-e|--editable)[ =]\.", line):
            found.append(Requirement("course_utils", editable=True))
        match = LINE.match(line)
        if match is None or (match["marker"] and not marker_holds(match["marker"])):
            continue
        pin = re.fullmatch(r"===?\s*([^\s,*]+)", match["specifier"].strip())
        found.append(Requirement(match["name"], pin[1] if pin else None))
    return found


def requirement_files(root: Path, tests: bool) -> list[Path]:
    """The files to install from. Without them this is a course installed as a package, as in Colab."""
    files = [root / LEARNER, *([root / TESTS] if tests else [])]
    for file in files:
        if not file.is_file():
            raise SetupError(f"{file} is not there. Run this command in the course's folder, as git cloned it.")
    return files


def read_requirements(files: list[Path]) -> list[Requirement]:
    return [one for file in files for one in parse_requirements(file.read_text(encoding="utf-8"))]


def same_version(installed: str, pin: str) -> bool:
    """Whether `installed` is what `pin` asks for: 2.13.0+cpu is 2.13.0, and 2.0 is 2.0.0, as for pip."""
    if "+" not in pin:
        installed = installed.partition("+")[0]

    def plain(version: str) -> str:
        return re.sub(r"(\.0)+(?=$|\+)", "", version.strip().lower().lstrip("v"))

    return plain(installed) == plain(pin)


# ---- what is there -------------------------------------------------------------------------------------------------

# Runs inside the environment in question. The current folder is taken off the path: only what is installed counts.
LOOK = """
import sys
sys.path[:] = [folder for folder in sys.path if folder]
import importlib.metadata, importlib.util, json, sysconfig
def version(name):
    try:
        return importlib.metadata.version(name)
    except Exception:
        return None
def origin(name):
    try:
        return importlib.util.find_spec(name).origin
    except Exception:
        return None
print(json.dumps({
    "version": list(sys.version_info[:2]),
    "prefix": sys.prefix,
    "packages": {name: version(name) for name in sys.argv[1:]},
    "course": origin("course_utils"),
    "pip": origin("pip") is not None,
    "site": sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}),
}))
"""


@dataclass(frozen=True)
class Snapshot:
    """What an environment has: asked once, by a short program that its own Python runs."""

    version: tuple[int, int]
    prefix: str
    packages: dict[str, str | None]
    course: str | None
    pip: bool
    site: list[str]


def bare_environment() -> dict[str, str]:
    """Our environment variables without those that would show one Python the packages of another.

    pip's own variables (PIP_INDEX_URL, PIP_FIND_LINKS …) are passed on. Only `--user` installs are switched off:
    pip refuses them in a virtual environment. And pip must refuse to run outside one: a damaged `.venv` whose Python
    takes itself for the system's would otherwise change the system.
    """
    hidden = {"PYTHONHOME", "PYTHONPATH", "__PYVENV_LAUNCHER__"}
    kept = {key: value for key, value in os.environ.items() if key not in hidden}
    return {**kept, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "1"}


def look_into(python: Path, requirements: list[Requirement]) -> Snapshot | None:
    """What the environment of `python` has, or None if that Python does not run."""
    command = [str(python), "-c", LOOK, *(one.name for one in requirements)]
    try:
        done = subprocess.run(
            command, env=bare_environment(), cwd=tempfile.gettempdir(), capture_output=True, text=True, timeout=60
        )
        seen = json.loads(done.stdout.strip().splitlines()[-1])
        return Snapshot(**{**seen, "version": tuple(seen["version"])})
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return None


def lacking(snapshot: Snapshot, requirements: list[Requirement], root: Path) -> list[str]:
    """What `requirements` ask for and the environment has not, in words."""
    missing = []
    for one in requirements:
        installed = snapshot.packages.get(one.name)
        if one.editable:
            here = (
                snapshot.course is not None
                and (root / "course_utils").resolve() in Path(snapshot.course).resolve().parents
            )
            if not here:
                missing.append(f"{one.name} (not installed from this folder)")
        elif installed is None:
            missing.append(f"{one} (not installed)")
        elif one.pin is not None and not same_version(installed, one.pin):
            missing.append(f"{one} ({installed} is installed)")
    return missing


def supported(version: tuple[int, int]) -> bool:
    return OLDEST <= tuple(version[:2]) <= NEWEST


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version[:2]))


# ---- the two places where an environment can be --------------------------------------------------------------------


def active_python(root: Path) -> Path | None:
    """The running Python if a learner's own environment is active (venv or conda), not the course's `.venv`."""
    prefix = Path(sys.prefix).resolve()
    conda = os.environ.get("CONDA_PREFIX")
    active = sys.prefix != sys.base_prefix or (conda is not None and Path(conda).resolve() == prefix)
    if not active or prefix == (root / ".venv").resolve():
        return None
    return Path(sys.executable)


class Home:
    """The course's own environment, `.venv` in the repository, and the note that says what was installed in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / ".venv"
        self.bin = self.folder / ("Scripts" if os.name == "nt" else "bin")
        # Never resolved: the link's target is the Python outside the environment.
        self.python = self.bin / ("python.exe" if os.name == "nt" else "python")
        self.note = self.folder / ".course.json"

    def look(self, requirements: list[Requirement]) -> Snapshot | None:
        """What is in `.venv`, or None if its Python does not run, or runs for another place.

        A `.venv/bin/python` without its `pyvenv.cfg` runs, but as the Python outside: nothing may be done with that.
        """
        snapshot = look_into(self.python, requirements)
        if snapshot is None or Path(snapshot.prefix).resolve() != self.folder.resolve():
            return None
        return snapshot

    def read_note(self) -> dict:
        """What the last complete installation wrote. Empty where there was none, or the note cannot be read."""
        try:
            note = json.loads(self.note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return note if isinstance(note, dict) and isinstance(note.get("files"), dict) else {}

    def fingerprint(self, files: list[Path], version: tuple[int, int]) -> dict:
        hashes = {
            file.relative_to(self.root).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
        }
        # The folder's own address counts: an editable install points to it, so a moved course is installed again.
        return {"python": dotted(version), "folder": str(self.root.resolve()), "files": hashes}

    def up_to_date(self, files: list[Path], version: tuple[int, int]) -> bool:
        note, now = self.read_note(), self.fingerprint(files, version)
        same_place = note.get("python") == now["python"] and note.get("folder") == now["folder"]
        return same_place and now["files"].items() <= note["files"].items()

    def write_note(self, files: list[Path], version: tuple[int, int], earlier: dict, cpu: bool) -> None:
        """`earlier`: the note from before, so that installing for the lessons does not forget the tests."""
        now = self.fingerprint(files, version)
        if all(earlier.get(key) == now[key] for key in ("python", "folder")):
            now["files"] = {**earlier["files"], **now["files"]}
        self.note.write_text(json.dumps({**now, "cpu": cpu}, indent=1), encoding="utf-8")


# ---- making and repairing ------------------------------------------------------------------------------------------


def remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise SetupError(
            f"{folder} has to be made again, but cannot be removed: {error}\n"
            "Close every program that uses it (JupyterLab, an editor), delete the folder, and run the command again."
        ) from None


def make(home: Home) -> None:
    """Makes `.venv`. An existing one keeps its packages: they are gigabytes, and pip checks them afterwards."""
    home.note.unlink(missing_ok=True)
    for old in home.bin.glob("python*"):
        if old.is_symlink() or old.is_file():  # a link that leads nowhere would not be written again
            old.unlink()
    command = [sys.executable, "-m", "venv", str(home.folder)]
    done = subprocess.run(
        command, env=bare_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if done.returncode:
        raise SetupError(failure(command, done.returncode, done.stdout.splitlines()))


def heal_packages(snapshot: Snapshot) -> None:
    """Removes what an interrupted pip left behind, so that pip installs it anew instead of taking it for complete.

    pip writes RECORD last: a package without it is half there. A name that begins with ~ is half removed.
    """
    for site in map(Path, snapshot.site):
        for entry in site.glob("*.dist-info"):
            if not (entry / "RECORD").is_file():
                remove(entry)
        for entry in site.glob("~*"):
            if entry.is_dir():
                remove(entry)


def give_pip(home: Home, snapshot: Snapshot) -> bool:
    """Puts pip back into an environment that has lost it (or never had it); False if that did not work."""
    for site in map(Path, snapshot.site):
        for entry in [*site.glob("pip"), *site.glob("pip-*.dist-info")]:  # ensurepip believes the dist-info
            remove(entry)
    command = [str(home.python), "-m", "ensurepip", "--upgrade", "--default-pip"]
    done = subprocess.run(command, env=bare_environment(), capture_output=True)
    again = home.look([])
    return done.returncode == 0 and again is not None and again.pip


def sound(home: Home) -> Snapshot:
    """A `.venv` with a Python that runs and a pip: repaired if possible, else made from nothing."""
    if home.folder.exists() and not home.folder.is_dir():
        raise SetupError(f"{home.folder} is a file, but the course's environment belongs there. Move it away.")
    for attempt in ("repair", "from nothing"):
        if attempt == "from nothing":
            say("The folder .venv is damaged: it is made again from nothing.")
            remove(home.folder)
        snapshot = home.look([])
        if snapshot is None:
            say("Making the environment: .venv" if not home.folder.exists() else "Repairing the environment: .venv")
            make(home)
            snapshot = home.look([])
        if snapshot is not None and (snapshot.pip or give_pip(home, snapshot)):
            heal_packages(snapshot)
            return snapshot
    raise SetupError(
        f"The environment {home.folder} was made, but its Python or its pip does not run.\n"
        "Install Python anew (python.org, your package manager or pyenv) and run the command again."
    )


def wrong_python(version: tuple[int, ...]) -> SetupError:
    """The running Python is too old or too new. Names one that is at hand, if there is."""
    at_hand = [f"python3.{minor}" for minor in (13, 12, 11) if runs(f"python3.{minor}")]
    advice = (
        f"There is {at_hand[0]} on this computer:  {at_hand[0]} -m course_utils …"
        if at_hand
        else "Install one of them (python.org, your package manager, conda or pyenv) and run the command with it."
    )
    return SetupError(
        f"This is Python {dotted(version)}. The course needs Python {dotted(OLDEST)} to {dotted(NEWEST)}.\n{advice}"
    )


def runs(command: str) -> bool:
    """Whether `command` is a Python that starts: pyenv puts names on the path that only print an error."""
    found = shutil.which(command)
    return found is not None and look_into(Path(found), []) is not None


def install_commands(home: Home, files: list[Path], requirements: list[Requirement], cpu: bool) -> list[list[str]]:
    """pip's command lines, in order.

    `--cpu` takes PyTorch first, and alone, with PyTorch's own index of CPU wheels as a further place to look. There it
    is called 2.13.0+cpu. That satisfies `==2.13.0`, and of all that satisfies a pin pip takes the highest: 2.13.0+cpu
    sorts above 2.13.0 (PEP 440). The second command then finds PyTorch in place.
    """
    pip = [str(home.python), "-m", "pip", "install", "--disable-pip-version-check"]
    torch = [str(one) for one in requirements if one.name == "torch"] if cpu else []
    first = [[*pip, "--no-deps", "--extra-index-url", CPU_WHEELS, *torch]] if torch else []
    return [*first, [*pip, *(word for file in files for word in ("-r", str(file)))]]


def announce(home: Home, cpu: bool) -> None:
    """Says before it starts what is downloaded, and what would make it less."""
    big = sys.platform == "linux" and not cpu
    size, disk = ("about 3 GB (PyTorch with CUDA)", 9) if big else ("about 500 MB", 3)
    say(f"Installing the course's packages into .venv. The first time this downloads {size}.")
    if big and shutil.which("nvidia-smi") is None:
        say(f"This computer shows no NVIDIA GPU. `{CALL} lab --cpu` downloads far less (Ctrl-C stops this).")
    free = shutil.disk_usage(home.root).free / 1e9
    if free < disk:
        say(f"The disk has {free:.1f} GB free; a full installation needs about {disk} GB.")


def run_pip(command: list[str], root: Path) -> tuple[int, list[str]]:
    """Runs pip with its output in view, and returns its exit code and what it wrote to stderr.

    Standard output is pip's own, so that its progress bars work. The errors pass through our hands.
    """
    with subprocess.Popen(
        command, cwd=root, env=bare_environment(), stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        lines = []
        for line in process.stderr or ():
            sys.stderr.write(line)
            sys.stderr.flush()
            lines.append(line.rstrip())
        return process.wait(), lines


def prepare_home(home: Home, files: list[Path], cpu: bool) -> Path:
    """The Python of the course's `.venv`, with everything that `files` ask for."""
    requirements = read_requirements(files)
    here = tuple(sys.version_info[:2])
    snapshot = home.look(requirements)
    note = home.read_note()
    # Running `python3.12 -m course_utils` asks for 3.12. Only an environment that we made ourselves is replaced.
    other = snapshot is not None and supported(here) and snapshot.version != here and bool(note)
    if snapshot is not None and not other and snapshot.pip and supported(snapshot.version):
        missing = lacking(snapshot, requirements, home.root)
        if not missing and home.up_to_date(files, snapshot.version):
            return home.python
    usable = snapshot is not None and not other and supported(snapshot.version)
    if not usable:
        if not supported(here):
            raise wrong_python(here)
        if snapshot is not None:
            say(f".venv is for Python {dotted(snapshot.version)}, this is {dotted(here)}: it is made again.")
            remove(home.folder)
    # Who once chose the CPU's PyTorch keeps it when the pins change.
    return install(home, files, requirements, cpu or note.get("cpu") is True, note if usable else {})


def install(home: Home, files: list[Path], requirements: list[Requirement], cpu: bool, note: dict) -> Path:
    """Runs pip in a sound `.venv`. The note goes first and comes back last: an interruption leaves none."""
    try:
        sound(home)
        home.note.unlink(missing_ok=True)
        announce(home, cpu)
        for command in install_commands(home, files, requirements, cpu):
            code, errors = run_pip(command, home.root)
            if code:
                raise SetupError(failure(command, code, errors))
    except OSError as error:
        raise SetupError(f"The environment {home.folder} cannot be written: {error}") from None
    snapshot = home.look(requirements)
    missing = ["a Python that runs"] if snapshot is None else lacking(snapshot, requirements, home.root)
    if missing or snapshot is None:
        raise SetupError(
            f"pip has finished, but .venv still lacks: {', '.join(missing)}.\n"
            f"Delete the folder {home.folder} and run the command again."
        )
    home.write_note(files, snapshot.version, note, cpu)
    say("The environment is ready.")
    return home.python


# ---- when it fails -------------------------------------------------------------------------------------------------

_NETWORK = (
    r"name resolution|Name or service not known|nodename nor servname|getaddrinfo failed|NewConnectionError"
    r"|Network is unreachable|Max retries exceeded|timed? ?out|ProxyError|Connection (refused|reset|aborted)"
)
_ADVICE = [
    (
        r"No space left on device|Errno 28|not enough space",
        "The disk is full. Free some space (about 9 GB with CUDA, 3 GB with --cpu), or use `lab --cpu`. "
        "`pip cache purge` frees what pip keeps.",
    ),
    (
        r"ensurepip|python3(\.\d+)?-venv",
        "This Python cannot make environments. On Debian or Ubuntu install what is missing:\n"
        "    sudo apt install python3-venv     (for another version: python3.12-venv)",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError",
        "A secure connection was refused. Behind a company's or a university's proxy, give pip its certificate: "
        "set PIP_CERT to the file.",
    ),
    (
        _NETWORK,
        "The package index was not reached. Check the connection (and HTTPS_PROXY behind a proxy), then run the "
        "command again: what is already downloaded is kept.",
    ),
    (
        r"No matching distribution|Could not find a version|Requires-Python|not a supported wheel",
        "The index has no such version for this computer. The course needs a 64-bit Python "
        f"{dotted(OLDEST)} to {dotted(NEWEST)}; PyTorch has no wheels for Macs with an Intel processor. "
        "If PIP_INDEX_URL points to a mirror, the mirror may be behind.",
    ),
    (
        r"Permission denied|Errno 13|Access is denied|WinError 5",
        "A file could not be written. Close JupyterLab and editors, and check who owns the folder.",
    ),
]


def failure(command: list[str], code: int, lines: list[str]) -> str:
    """What a failed command leaves the learner with: its last useful lines, its name, and what to do."""
    text = "\n".join(lines)
    errors = [line for line in lines if re.match(r"\s*(ERROR|error|OSError|Error)", line)]
    useful = errors or [line for line in lines if line and not line.startswith("WARNING")]
    advice = next((words for pattern, words in _ADVICE if re.search(pattern, text, re.IGNORECASE)), None)
    if code in (-9, 137):
        advice = "The system stopped it, most likely because memory ran out. Close other programs and try again."
    elif advice is None:
        advice = f"Run the command again. If it fails in the same way, delete .venv first. `{CALL} doctor` shows more."
    quoted = subprocess.list2cmdline(command)
    return "\n".join(["", *useful[-6:], "", f"This command failed (exit code {code}):", f"    {quoted}", "", advice])


# ---- what the command line uses ------------------------------------------------------------------------------------


def prepare(root: Path = ROOT, *, tests: bool = False, cpu: bool = False) -> Path:
    """The Python to run the course with: the active environment if it has everything, else `.venv`, made if needed."""
    files = requirement_files(root, tests)
    active = active_python(root)
    if active is not None:
        requirements = read_requirements(files)
        snapshot = look_into(active, requirements)
        missing = ["a Python that runs"] if snapshot is None else lacking(snapshot, requirements, root)
        if not missing:
            return active
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        say(f"The active environment lacks {missing[0]}{more}; the course uses its own, .venv.")
    return prepare_home(Home(root), files, cpu)


def child_environment(python: Path) -> dict[str, str]:
    """Variables for a program in the environment, as if it had been activated: `!pip` in a notebook finds its pip."""
    variables = {key: value for key, value in os.environ.items() if key not in ("PYTHONHOME", "__PYVENV_LAUNCHER__")}
    folder = python.parent
    variables["PATH"] = os.pathsep.join([str(folder), *filter(None, [variables.get("PATH")])])
    if (folder.parent / "pyvenv.cfg").exists():
        variables["VIRTUAL_ENV"] = str(folder.parent)
    return variables


def hand_over(python: Path, arguments: list[str], variables: dict[str, str], root: Path = ROOT) -> int:
    """Runs `python arguments` in the repository and ends with its exit code.

    Where the system can, the program takes this one's place: Ctrl-C and every other signal reach it, and nothing is
    left behind. Windows waits instead, and leaves Ctrl-C to the program.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    command = [str(python), *arguments]
    if os.name == "posix":
        os.chdir(root)
        os.execve(python, command, variables)
    with subprocess.Popen(command, cwd=root, env=variables) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue
