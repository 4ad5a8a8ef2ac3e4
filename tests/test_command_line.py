"""The command line: tables of situations, and what cannot stand in one. No network and no PyTorch.

The slow tests make real environments, with one tiny package.
"""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest

from course_utils import __main__ as cli
from course_utils import cache
from course_utils.setup import SetupError, advice, doctor, environment, lab, making, state
from course_utils.setup.version import version
from course_utils.syllabus import LESSONS, ROOT

VENV, VERSION, REPLACE = "venv ensurepip pip .venv", sys.version_info, os.replace

# What a learner has done or met (in the words of WORDS) | the command | its exit code | what is run: venv, ensurepip,
# pip, then a program of `.venv` or of the Python that runs ("here"); "all" is `venv ensurepip pip .venv` | which
# environments are left: `new` is made by the command, `old` was there before | what is said, a regular expression.
SITUATIONS = """
nothing                      | lab       | 0 | all | .venv new | not there yet.*downloads about (3 GB|550 MB)
nothing                      | lab --cpu | 0 | venv ensurepip pip+cpu .venv | .venv new | about 550 MB
nothing                      | test      | 0 | venv ensurepip pip+tests .venv | .venv new | not there yet.*about
nothing                      | bench     | 0 | all | .venv new | not there yet.*about
ready                        | lab       | 0 | .venv | .venv old | ^$
ready                        | lab --cpu | 0 | .venv | .venv old | ^$
ready                        | bench     | 0 | .venv | .venv old | ^$
ready                        | test      | 0 | pip+tests .venv | .venv old | tests/requirements.txt .* about 80 MB
ready for tests              | test      | 0 | .venv | .venv old | ^$
ready for tests              | lab       | 0 | .venv | .venv old | ^$

ready, pins changed          | lab       | 0 | all | .venv new | for another requirements.txt. .*about
ready, constraints changed   | lab       | 0 | all | .venv new | for another constraints.txt
ready for tests, pins changed | lab      | 0 | venv ensurepip pip+tests .venv | .venv new | another requirements.txt
ready with cpu, pins changed | lab       | 0 | venv ensurepip pip+cpu .venv | .venv new | another requirements.txt
ready, another Python        | lab       | 0 | .venv | .venv old | ^$
ready, Python too old        | lab       | 0 | all | .venv new | lacks a Python 3.11 to 3.13 that runs
ready, course moved          | lab       | 0 | all | .venv new | for another folder, /elsewhere
ready, numpy replaced        | lab       | 0 | all | .venv new | lacks numpy==2.4.6 .2.1.0 is installed
ready, numpy gone            | lab       | 0 | all | .venv new | lacks numpy==2.4.6 .not installed
ready, pandas added          | lab       | 0 | .venv | .venv old | ^$
ready, comment changed       | lab       | 0 | .venv | .venv old | ^$
ready, pandas added, pins changed | lab | 0 | all | .venv new | To have them again:.* install pandas==2.2$
ready, Python gone           | lab       | 0 | all | .venv new | lacks a Python 3.11 to 3.13 that runs
ready, Python broken         | lab       | 0 | all | .venv new | lacks a Python 3.11 to 3.13 that runs
ready, pyvenv.cfg gone       | lab       | 0 | all | .venv new | lacks a Python 3.11 to 3.13 that runs
ready, stamp damaged         | lab       | 0 | all | .venv new | was not finished
ready, stamp of another kind | lab       | 0 | all | .venv new | was not finished
ready, older course          | lab       | 0 | all | .venv new | without constraints.txt
ready, stamp lost            | lab       | 0 | .venv | .venv old | ^$

learner's venv               | lab       | 0 | all | .venv new, .venv.yours theirs | not made by this course.*is yours
learner's venv, name taken   | lab       | 0 | all | .venv new, .venv.yours a file, .venv.yours2 theirs | yours2
learner's venv, Python gone  | lab       | 0 | all | .venv new, .venv.yours theirs | kept as it is.*name .venv.yours
learner's venv, disk full    | lab       | 1 | venv ensurepip pip | .venv theirs | there again.*disk is full
learner's venv, too old      | lab       | 1 | | .venv theirs | This is Python 3.8
file in the way              | lab       | 0 | all | .venv new, .venv.yours a file | .venv.yours

killed                       | lab       | 0 | all | .venv new | was not finished
killed, waste left           | lab       | 0 | all | .venv new | was not finished
ready, killed anew           | lab       | 0 | all | .venv new | was not finished
ready, killed anew, disk full | lab      | 1 | venv ensurepip pip | .venv old | there again.*disk is full
ready, killed while adding   | lab       | 0 | all | .venv new | was not finished
ready, killed while tidying  | lab       | 0 | .venv | .venv old | ^$
interrupted                  | lab       | 130 | venv ensurepip pip | | Stopped
ready, interrupted           | test      | 130 | pip+tests | .venv old | Stopped
ready, pins changed, interrupted | lab   | 130 | venv ensurepip pip | .venv old | there again.*Stopped

disk full                    | lab       | 1 | venv ensurepip pip | | exit code 1.*pip install.*disk is full
ready, disk full             | test      | 1 | pip+tests | .venv old | disk is full
ready, pins changed, disk full | lab     | 1 | venv ensurepip pip | .venv old | there again.*disk is full
ready, pins changed, in use  | lab       | 1 | | .venv old | Close every program
no venv                      | lab       | 1 | venv | | sudo apt install python3-venv
no ensurepip                 | lab       | 1 | venv ensurepip | | sudo apt install python3-venv
read-only                    | lab       | 1 | | | could not be done.*Clone the course into a folder of your own
not executable               | lab       | 1 | venv ensurepip | | could not be done.*could not be written or started
file called my_course        | lab       | 1 | | | could not be done.*my_course.*Rename the file
pip installs elsewhere       | lab       | 1 | venv ensurepip pip | | still lacks numpy.*target, prefix
no requirements              | lab       | 1 | | | requirements.txt is not there. Run this command in the course

here complete                | lab       | 0 | here | | ^$
ready, killed anew, here complete | lab  | 0 | here | .venv half, .venv.old old | ^$
here complete                | test      | 0 | venv ensurepip pip+tests .venv | .venv new | not there yet.*about
here complete for tests      | test      | 0 | here | | ^$
here complete                | bench     | 0 | here | | ^$
here other versions          | bench     | 0 | here | | every package, though not numpy==2.4.6 .2.1.0
here other versions          | lab       | 0 | all | .venv new | not there yet.*about
ready, here other versions   | bench     | 0 | .venv | .venv old | ^$
active, here complete        | lab       | 0 | here | | ^$
ready, active                | lab       | 0 | .venv | .venv old | active environment lacks numpy==2.4.6 .* and 1 more

too old                      | lab       | 1 | | | This is Python 3.8..*3.11 to 3.13.*3.12 -m .* lab
too old, no other            | lab       | 1 | | | Install one of them
ready, too old               | lab       | 0 | .venv | .venv old | ^$
ready, too old               | test      | 0 | .venv | .venv old | ^$
ready, too new               | lab       | 0 | .venv | .venv old | ^$
"""


class World:
    """A course with two lessons. venv and pip are played: `.venv/bin/python` holds, as JSON, what a real one has."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.home, self.patch = root, state.Home(root), monkeypatch.setattr
        self.log: list[str] = []
        self.trouble: dict[str, BaseException] = {}
        self.here: dict[str, str] = {}
        self.write("requirements.txt", 'numpy==2.4.6\ntorch==2.13.0\nx==1; sys_platform == "nowhere"\n-e .\n')
        self.write("tests/requirements.txt", "# more\nruff==0.17.6  # and why\n")
        self.write("constraints.txt", "tqdm==4.70.1\n")
        self.write("notebooks/00_a.ipynb", "shipped a")
        self.write("notebooks/01_b.ipynb", "shipped b")
        for module in (state, environment):
            self.patch(module, "look_into", self.look_into)
        self.patch(making, "run", self.run)
        self.patch(cli, "ROOT", root)
        self.patch(environment, "hand_over", self.hand_over)
        self.patch(environment, "activated", lambda: False)
        self.patch(environment, "starts", lambda call: "3.12" in call)
        self.patch(sys, "prefix", sys.base_prefix)

    def look_into(self, python: Path) -> dict | None:
        if python == Path(sys.executable):
            return {"prefix": sys.prefix, "version": sys.version_info[:2], "packages": self.here}
        try:
            return {"prefix": str(self.home.folder), "version": [3, 12], **json.loads(python.read_text())}
        except (OSError, ValueError):
            return None

    def run(self, command: list[str], root: Path) -> None:
        name = next(name for name in ("venv", "ensurepip", "pip") if name in command)
        extras = [label for label, word in (("+cpu", making.CPU_WHEELS), ("+tests", state.TESTS)) if word in command]
        self.log.append("".join([name, *extras]))
        assert self.home.read_stamp() == {}, "whoever is killed from here on leaves an unfinished environment"
        if name in self.trouble:
            raise self.trouble[name]
        if name == "venv":
            self.environment("new")
        elif name == "pip" and "elsewhere" not in self.trouble:
            self.packages(**state.pins(root, *(after for before, after in pairwise(command) if before == "-r")))

    def hand_over(self, python: Path, *_: object) -> int:
        self.log.append("here" if python == Path(sys.executable) else python.relative_to(self.root).parts[0])
        return 0

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def environment(self, label: str, **seen: object) -> None:
        self.write(self.home.python.relative_to(self.root).as_posix(), json.dumps({"packages": {}, **seen}))
        self.write(".venv/label", label)

    def packages(self, **changes: str | None) -> None:
        seen = json.loads(self.home.python.read_text())
        packages = {name: version for name, version in {**seen["packages"], **changes}.items() if version}
        self.home.python.write_text(json.dumps({**seen, "packages": packages}))

    def python(self, *version: int) -> None:
        self.home.python.write_text(json.dumps({**json.loads(self.home.python.read_text()), "version": version}))

    def stamp(self, **changes: str) -> None:
        self.home.write_stamp({**(self.home.read_stamp() or {}), **changes})

    def disk(self) -> str:
        there = [path for path in sorted(self.root.glob(".venv*")) if path.name != ".venv.lock"]
        return ", ".join(f"{x.name} {(x / 'label').read_text() if x.is_dir() else 'a file'}" for x in there)

    def main(self, command: str) -> int:
        self.log.clear()
        return cli.main(command.split())

    def ready(self, command: str) -> None:
        assert self.main(command) == 0
        self.write(".venv/label", "old")

    def killed(self) -> None:
        self.environment("half")
        self.home.write_stamp({})

    def fails(self, name: str, line: str) -> None:
        self.trouble[name] = SetupError(advice.failure(["python", "-m", name, "install"], 1, [line]))

    def read_only(self, *_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    def in_use(self, source: Path, target: Path) -> None:
        if source == self.home.folder:
            raise PermissionError(13, "The process cannot access the file")
        REPLACE(source, target)

    def end_of_trouble(self) -> None:
        """The learner has done what was said."""
        self.trouble.clear()
        if (self.root / "my_course").is_file():
            (self.root / "my_course").unlink()
        for thing, name, value in ((sys, "version_info", VERSION), (os, "replace", REPLACE), (making, "open", open)):
            self.patch(thing, name, value, raising=False)
        self.write("requirements.txt", "numpy==2.4.6\n")


# What the words of the tables mean.
WORDS = {
    "nothing": lambda w: None,
    "ready": lambda w: w.ready("lab"),
    "ready for tests": lambda w: w.ready("test"),
    "ready with cpu": lambda w: w.ready("lab --cpu"),
    "pins changed": lambda w: w.write("requirements.txt", "numpy==2.4.7\ntorch==2.13.0\n"),
    "comment changed": lambda w: w.write("constraints.txt", "# why\ntqdm==4.70.1  # and that\n"),
    "constraints changed": lambda w: w.write("constraints.txt", "tqdm==4.70.2\n"),
    "another Python": lambda w: w.python(3, 11 if VERSION >= (3, 12) else 12),
    "Python too old": lambda w: w.python(3, 10),
    "course moved": lambda w: w.stamp(folder="/elsewhere"),
    "numpy replaced": lambda w: w.packages(numpy="2.1.0"),
    "numpy gone": lambda w: w.packages(numpy=None),
    "pandas added": lambda w: w.packages(pandas="2.2"),
    "Python gone": lambda w: w.home.python.unlink(),
    "Python broken": lambda w: w.home.python.write_text("broken"),
    # Then `.venv`'s Python runs, but takes itself for the system's, and pip would change that one.
    "pyvenv.cfg gone": lambda w: w.home.python.write_text(json.dumps({"packages": {}, "prefix": sys.base_prefix})),
    "stamp damaged": lambda w: w.home.stamp.write_text('{"Python": "3.1'),
    "stamp of another kind": lambda w: w.home.stamp.write_text("[3]"),
    "older course": lambda w: w.home.write_stamp({"python": "3.12", "folder": str(w.root), "files": {}}),
    "stamp lost": lambda w: w.home.stamp.unlink(),
    "learner's venv": lambda w: w.environment("theirs", version=[3, 10]),
    "name taken": lambda w: w.write(".venv.yours", ""),
    "file called my_course": lambda w: w.write("my_course", ""),
    "file in the way": lambda w: w.write(".venv", ""),
    "killed": lambda w: w.killed(),
    "killed anew": lambda w: (w.home.folder.rename(w.home.old), w.killed()),
    "killed while adding": lambda w: w.home.write_stamp({}),
    "killed while tidying": lambda w: w.write(".venv.old/label", "half"),
    "waste left": lambda w: w.write(".venv.waste/label", "half"),
    "interrupted": lambda w: w.trouble.update(pip=KeyboardInterrupt()),
    "disk full": lambda w: w.fails("pip", "ERROR: Could not install: [Errno 28] No space left on device"),
    "no venv": lambda w: w.fails("venv", "/usr/bin/python3: No module named venv"),
    "no ensurepip": lambda w: w.fails("ensurepip", "/course/.venv/bin/python: No module named ensurepip"),
    "not executable": lambda w: w.trouble.update(ensurepip=PermissionError(13, "Permission denied")),
    "pip installs elsewhere": lambda w: w.trouble.update(elsewhere=Exception()),
    "read-only": lambda w: w.patch(making, "open", w.read_only, raising=False),
    "in use": lambda w: w.patch(os, "replace", w.in_use),
    "no requirements": lambda w: (w.root / "requirements.txt").unlink(),
    "here complete": lambda w: w.here.update(numpy="2.4.6", torch="2.13.0+cu130"),
    "here complete for tests": lambda w: w.here.update(numpy="2.4.6", torch="2.13.0", ruff="0.17.6"),
    "here other versions": lambda w: w.here.update(numpy="2.1.0", torch="2.11.0"),
    "active": lambda w: w.patch(environment, "activated", lambda: True),
    "too old": lambda w: w.patch(sys, "version_info", (3, 8, 18)),
    "too new": lambda w: w.patch(sys, "version_info", (3, 14, 0)),
    "no other": lambda w: w.patch(environment, "starts", lambda call: False),
}


def rows(table: str, columns: int) -> list[list[str]]:
    lines = [line for line in table.splitlines() if "|" in line]
    return [[cell.strip() for cell in line.split("|", columns - 1)] for line in lines]


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path / "a course", monkeypatch)


def meet(world: World, situation: str) -> None:
    for word in situation.split(", "):
        WORDS[word](world)


@pytest.mark.parametrize(("situation", "command", "code", "ran", "left", "said"), rows(SITUATIONS, 6))
def test_situation(situation, command, code, ran, left, said, world, capsys):
    meet(world, situation)
    capsys.readouterr()
    assert world.main(command) == int(code)
    text = "".join(capsys.readouterr())
    assert (" ".join(world.log), world.disk()) == (VENV if ran == "all" else ran, left)
    assert re.search(said, text, re.DOTALL) and "Traceback" not in text, text
    assert not list(world.root.rglob("*.part"))
    if code != "0":  # the trouble is over: the same command does its work
        world.end_of_trouble()
        assert world.main(command) == 0
    assert world.main(command) == 0 and len(world.log) == 1, "the next time it starts at once"


# What pip or venv has said | what a learner is told.
SAYINGS = """
ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device | disk is full.*TMPDIR
Error: [Errno 30] Read-only file system: '/x/.venv'                        | a folder of your own
Error: Refusing to create a venv in /a:b/.venv because it contains the PATH separator :. | Rename the folder
The virtual environment was not created successfully because ensurepip is not available. | apt install python3-venv
/usr/bin/python3: No module named venv                                     | apt install python3-venv
/x/.venv/bin/python: No module named ensurepip                             | apt install python3-venv
Configuration file could not be loaded.                                    | pip's own settings.*config debug
Configuration file contains invalid UTF-8 characters in /x/pip.conf.       | pip's own settings.*config debug
An error occurred during configuration: option timeout: invalid floating-point value: 'abc' | pip's own settings
ERROR: Could not install packages due to an OSError: Proxy URL had unsupported scheme ftp | proxy is no address
ERROR: Could not install packages due to an OSError: Please check proxy URL. It is malformed | Set is: HTTPS_PROXY
WARNING: Retrying after connection broken by 'ProxyError('Cannot connect to proxy.', NewConnectionError( | proxy
ERROR: Could not install packages due to an OSError: Failed to parse: http://[::1 | proxy
ERROR: Could not install packages due to an OSError: Missing dependencies for SOCKS support. | proxy
SSLError(SSLCertVerificationError                                          | PIP_CERT
NewConnectionError: [Errno -3] Temporary failure in name resolution        | Check the connection
ERROR: No matching distribution found for torch==2.13.0                    | 64-bit Python
ERROR: Package 'x' requires a different Python: 3.9.1 not in '>=3.11' (Requires-Python) | 3.11 to 3.13
OSError: [Errno 13] Permission denied: 'x'                                 | who owns
ERROR: something new                                                       | doctor
"""


@pytest.mark.parametrize(("line", "told"), rows(SAYINGS, 2))
def test_a_failure_says_what_to_do(line, told, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy")
    text = advice.failure(["python", "-m", "pip"], 1, ["Collecting torch", line])
    assert re.search(told, text, re.DOTALL), text
    assert "exit code 1" in text and "python -m pip" in text and "secret" not in text
    assert line in text or line.startswith("WARNING")


# What has happened to lesson 00 and a learner's copy of it | what is said | what is in the copy.
COPIES = r"""
                            | ^$                                   | shipped a
copied                      | ^$                                   | shipped a
copied, edited              | ^$                                   | my answers
copied, newer               | newer version exists of: 00_a.ipynb. | shipped a
copied, edited, newer       | newer version exists of: 00_a.ipynb. | my answers
copied, newer, put away     | ^$                                   | shipped anew
copied, record lost         | ^$                                   | shipped a
copied, record lost, edited | may be older .*: 00_a.ipynb.         | my answers
copied, record lost, newer  | may be older .*: 00_a.ipynb.         | shipped a
copied, record cut, edited  | may be older .*: 00_a.ipynb.         | my answers
copied, record odd, edited  | may be older .*: 00_a.ipynb.         | my answers
"""


@pytest.mark.parametrize(("happened", "said", "left"), rows(COPIES, 3))
def test_a_copy_is_never_overwritten(happened, said, left, world, capsys):
    mine, record = (world.root / "my_course" / name for name in ("00_a.ipynb", lab.RECORD))
    lesson = world.root / "notebooks" / "00_a.ipynb"
    actions = {
        "copied": lambda: lab.copy_lessons(world.root),
        "edited": lambda: mine.write_text("my answers"),
        "newer": lambda: lesson.write_text("shipped anew"),
        "put away": lambda: mine.rename(mine.with_name("mine.ipynb")),
        "record lost": lambda: record.unlink(),
        "record cut": lambda: record.write_text('{"00_a.ipynb": "3f'),
        "record odd": lambda: record.write_text('{"00_a.ipynb": 3}'),
    }
    for word in filter(None, happened.split(", ")):
        actions[word]()
    for _ in "again and again":
        lab.tell(world.root, *lab.copy_lessons(world.root))
        text = capsys.readouterr().out
        assert re.search(said, text) and "01_b" not in text
    assert mine.read_text() == left
    mine.unlink()
    assert lab.copy_lessons(world.root) == ([], []) and mine.read_text() == lesson.read_text(), "as the message says"


def test_brackets_in_the_path_are_mentioned(capsys):
    lab.tell(Path("a course (1)"), [], [])
    assert capsys.readouterr().out == ""
    lab.tell(Path("a course [1]"), [], [])
    assert "rename the folder" in capsys.readouterr().out


@pytest.mark.parametrize("moment", range(4))
def test_an_interruption_while_copying_loses_no_lesson(moment, world, monkeypatch):
    """Neither half a copy is left, nor one that counts as of an unknown version."""
    moments = iter(range(4))

    def interrupted(path: Path, data: bytes) -> None:
        if next(moments) == moment:
            raise KeyboardInterrupt
        cache.write_atomically(path, data)

    monkeypatch.setattr(lab, "write_atomically", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lab.copy_lessons(world.root)
    monkeypatch.undo()
    assert lab.copy_lessons(world.root) == ([], [])
    world.write("notebooks/00_a.ipynb", "shipped anew")
    assert lab.copy_lessons(world.root) == (["00_a.ipynb"], [])


def test_a_full_disk_leaves_no_half_lesson(world, monkeypatch):
    real = Path.write_bytes

    def full(path: Path, data: bytes) -> None:
        real(path, data[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        lab.copy_lessons(world.root)
    assert list((world.root / "my_course").iterdir()) == []


def together(program: str, *arguments: object, times: int = 5) -> list[str]:
    """What this program prints when it runs several times at once. Each must end well."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    started = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(times)]
    said = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * times
    return said


def test_two_at_once_copy_without_a_conflict(world):
    program = (
        "import sys, pathlib; from course_utils.setup import lab; print(lab.copy_lessons(pathlib.Path(sys.argv[1])))"
    )
    assert together(program, world.root) == ["([], [])\n"] * 5


def test_two_at_once_make_one_after_the_other(world):
    program = """if True:
        import pathlib, sys, time
        from course_utils.setup import making
        with making.alone(pathlib.Path(sys.argv[1])):
            start = time.monotonic()
            time.sleep(0.2)
            print(start, time.monotonic())
    """
    said = together(program, world.root, times=3)
    times = sorted(tuple(map(float, text.splitlines()[-1].split())) for text in said)
    assert all(end <= start for (_, end), (start, _) in pairwise(times))
    assert sum("This one waits for it" in text for text in said) == 2


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent as a signal")
def test_ctrl_c_ends_what_was_started(tmp_path):
    """Also a Ctrl-C that reaches only the course's own process. Otherwise pip goes on while we say that it stopped."""
    sleeper = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    program = f"from course_utils.setup import making; making.run([{sys.executable!r}, '-c', {sleeper!r}], '.')"
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.DEVNULL)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.wait(20)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("setting", ["PIP_TIMEOUT", "PIP_CONFIG_FILE"])
def test_settings_that_pip_cannot_read_are_named(setting, tmp_path, monkeypatch):
    """pip says some of this on the screen only."""
    (tmp_path / "abc").write_text("[global")
    monkeypatch.setenv(setting, "abc")
    with pytest.raises(SetupError, match="pip's own settings cannot be read"):
        making.run([sys.executable, "-m", "pip", "install", "x"], tmp_path)


def test_errors_of_pip_are_shown_and_kept(tmp_path, capfd):
    program = "import sys; print('loading'); print('ERROR: no', file=sys.stderr); sys.exit(3)"
    with pytest.raises(SetupError, match="ERROR: no"):
        making.run([sys.executable, "-c", program, "install"], tmp_path)
    captured = capfd.readouterr()
    assert "loading" in captured.out and "ERROR: no" in captured.err


def test_only_the_course_s_own_environment_can_be_changed(monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    variables = state.bare_environment()
    assert variables["PIP_INDEX_URL"] == "https://mirror.example/simple" and "PYTHONPATH" not in variables
    assert variables["PIP_REQUIRE_VIRTUALENV"] == "1"


# ---- versions ------------------------------------------------------------------------------------------------------


def test_every_package_has_an_exact_version():
    """What the requirements pin is pinned in the same way for what their packages need in turn."""
    files = [ROOT / name for name in (state.LEARNER, state.TESTS, state.CONSTRAINTS)]
    lines = [line for file in files for line in file.read_text().splitlines() if line and not line.startswith("#")]
    assert all("==" in line or line == "-e ." for line in lines)
    everything = state.pins(ROOT, state.CONSTRAINTS)
    for name, pin in state.pins(ROOT, state.LEARNER, state.TESTS).items():
        assert everything[name] == pin, name


def test_the_version_follows_the_commit(tmp_path):
    def git(*arguments: str, date: str = "") -> None:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        dates = {"GIT_COMMITTER_DATE": date, "GIT_CONFIG_GLOBAL": os.devnull}
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, env={**os.environ, **dates}, check=True)

    assert version(tmp_path, "1764493680 aa52a7413b5e") == "0.1.20251130090800+gaa52a7413", "an archive"
    assert version(tmp_path, "no commit") == "0.1"
    git("init", "-q")
    for second in "12":
        git("commit", "-q", "--allow-empty", "-m", "x", date=f"2026-11-30T10:00:0{second}+01:00")
        assert version(tmp_path).startswith(f"0.1.2026113009000{second}+g")
    (tmp_path / "unpacked").mkdir()
    assert version(tmp_path / "unpacked", "no commit") == "0.1", "a repository around it is not the course's"
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nVersion: 0.1.5+gabc\n")
    assert version(tmp_path) == "0.1.5+gabc", "a source package"


def test_an_old_python_can_read_what_tells_that_it_is_too_old():
    program = "import sys, course_utils.__main__; print(*(m.__file__ for n, m in sys.modules.items()"
    program += " if n.startswith('course_utils')), sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [Path(line) for line in loaded.stdout.splitlines()]
    assert {"__main__.py", "environment.py"} <= {path.name for path in paths}
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
        postponed = any(isinstance(one, ast.ImportFrom) and one.module == "__future__" for one in tree.body)
        functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
        assert postponed or not functions, f"{path} needs `from __future__ import annotations`: Python 3.8 reads it"
    old = next((name for name in ("python3.8", "python3.9", "python3.10") if environment.starts(name)), None)
    if old is None:
        pytest.skip("there is no old Python here")
    program = "import sys, course_utils.__main__ as c; c.ROOT = c.ROOT / 'nowhere'; sys.exit(c.main(['lab']))"
    done = subprocess.run([old, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "The course needs Python 3.11 to 3.13" in done.stderr


# ---- the verbs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_names_every_verb(arguments, capsys):
    assert cli.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines[2:] if not line.startswith(" ")} == set(cli.VERBS)


@pytest.mark.parametrize("verb", cli.VERBS)
def test_help_of_one_verb_starts_nothing(verb, capsys, monkeypatch):
    monkeypatch.setattr(environment, "prepare", lambda *_, **__: pytest.fail("help must not install"))
    assert cli.main([verb, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == verb and len(lines) <= 3


def test_unknown_verb(capsys):
    assert cli.main(["lob"]) == 2
    error = capsys.readouterr().err
    assert "lob" in error and "lab" in error


def test_start_imports_nothing_heavy():
    code = (
        "import sys, course_utils, course_utils.__main__, course_utils.setup.lab, course_utils.setup.doctor\n"
        "print(sorted({'torch', 'numpy', 'matplotlib', 'IPython', 'nbformat', 'pytest'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.fixture
def handed_over(monkeypatch):
    """What would be run, instead of running it."""
    seen = {}

    def prepare(root=ROOT, **options):
        seen["options"] = options
        return Path(sys.executable)

    def hand_over(python, arguments, variables, root=ROOT):
        seen.update(arguments=arguments, variables=variables)
        return 7

    monkeypatch.setattr(environment, "prepare", prepare)
    monkeypatch.setattr(environment, "hand_over", hand_over)
    return seen


def test_lab_passes_arguments_on_and_is_not_strict(world, handed_over, monkeypatch):
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "this one")
    assert cli.main(["lab", "--cpu", "--no-browser", "--port", "9999"]) == 7
    assert handed_over["options"] == {"cpu": True, "exact": True}
    folder = str(world.root / "my_course")
    assert handed_over["arguments"] == ["-m", "jupyterlab", folder, "--no-browser", "--port", "9999"]
    assert "PYTEST_CURRENT_TEST" not in handed_over["variables"]


def test_jupyterlab_opens_the_first_lesson_also_for_root(monkeypatch):
    """With our settings, in front of the learner's own: their options on the command line still win."""
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "mine")
    ours, theirs = lab.jupyter_variables(dict(os.environ))["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    settings = json.loads((Path(ours) / "jupyter_lab_config.json").read_text())
    assert settings["LabApp"]["default_url"] == f"/lab/tree/{LESSONS[0].stem}.ipynb"
    assert settings["ServerApp"]["allow_root"] is True and theirs == "mine"


def test_test_verb(handed_over, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert cli.main(["test"]) == 7
    assert handed_over["options"]["tests"] is True
    text, variables = " ".join(handed_over["arguments"]), handed_over["variables"]
    assert "-n 2 --dist loadfile" in text and "--nbval --answers reference" in text and "-m not slow" in text
    assert text.endswith("-m not slow"), "no path: the default is pytest's own setting"
    assert variables["OMP_NUM_THREADS"] == "1" and not {"MPLBACKEND", "PYTEST_ADDOPTS"} & set(variables)
    assert variables["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    cli.main(["test", "--all"])
    assert "not slow" not in handed_over["arguments"] and "--all" not in handed_over["arguments"]
    assert handed_over["variables"]["OMP_NUM_THREADS"] == "3"


@pytest.mark.skipif(os.name != "posix", reason="HOME is where POSIX systems look")
def test_without_a_home_that_can_be_written_matplotlib_writes_elsewhere(monkeypatch, tmp_path):
    monkeypatch.delenv("MPLCONFIGDIR", raising=False)
    for home, elsewhere in ((tmp_path, False), (tmp_path / "nowhere", True)):
        monkeypatch.setenv("HOME", str(home))
        assert ("MPLCONFIGDIR" in environment.child_environment(Path(sys.executable))) == elsewhere


def test_paths_given_to_test_replace_the_default(handed_over, monkeypatch):
    """The default is pytest's own setting; paths are seen from the repository, where pytest runs."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert settings["testpaths"] == ["notebooks", "tests"] and "-p no:randomly" in settings["addopts"]
    node = "tests/test_command_line.py::test_unknown_verb"
    for folder, words, seen in (
        (ROOT, [node, "-x", "-k", "tests and not x"], [str(Path(node)), "-x", "-k", "tests and not x"]),
        (ROOT, ["-k", "tests", "--cpu", "-q"], ["-k", "tests", "-q"]),
        (ROOT / "tests", [str(ROOT / node), "--all"], [str(Path(node))]),
        (ROOT / "tests", [node.partition("/")[2]], [str(Path(node))]),
    ):
        monkeypatch.chdir(folder)
        cli.main(["test", *words])
        assert handed_over["arguments"][-len(seen) :] == seen


def test_build_and_bench_call_their_rooms(handed_over):
    assert cli.main(["build", "--check", "multi_head"]) == 7
    assert "course_utils.authoring.build import main" in handed_over["arguments"][1]
    assert "main(words, check=True)" in handed_over["arguments"][1] and handed_over["arguments"][2:] == ["multi_head"]
    assert handed_over["options"]["tests"] is True
    assert cli.main(["bench"]) == 7
    assert "course_utils.benchmarks import main" in handed_over["arguments"][1]


# ---- the doctor ----------------------------------------------------------------------------------------------------


def test_doctor_survives_broken_packages(tmp_path):
    """A package that dies on import is one line, and the others are still looked at."""
    for name, body in (("torch", "raise OSError('libcuda is broken\\nand more')"), ("numpy", "import os; 1 / 0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(body)
        info = tmp_path / f"{name}-9.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import course_utils.setup.doctor as d; "
    code += "sys.exit(d.report())"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True)
    lines = dict(line.strip().split(maxsplit=1) for line in done.stdout.splitlines())
    assert done.returncode == doctor.BROKEN and "libcuda" in lines["device"] and lines["nbval"] == "not installed"
    assert lines["torch"] == "9   BROKEN  OSError: libcuda is broken"
    assert lines["numpy"] == "9   BROKEN  ZeroDivisionError: division by zero"
    assert lines[f'"{sys.executable}"'] == "-m pip install --force-reinstall --no-deps numpy==9"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "^$"),
        (doctor.BROKEN, "^The lines above"),
        (-11, r"could not be looked at \(exit code -11\): Segmentation fault"),
    ],
)
def test_doctor_reports_a_process_that_dies(code, said, monkeypatch):
    done = subprocess.CompletedProcess([], code, stderr=b"Segmentation fault")
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: done)
    assert re.search(said, doctor.look_inside(Path(sys.executable)))


# The situation | what the doctor says.
DOCTOR = r"""
nothing                  | .venv is not there yet\n.* lab\n.*numpy is broken
ready                    | For `test` only: .venv was made without tests/requirements.txt\n.* test\n
ready, numpy replaced    | lacks numpy==2.4.6 .2.1.0 is installed.\n.* lab\n
ready, course moved      | another folder.*\n.* lab\n
ready, Python broken     | lacks a Python 3.11 to 3.13 that runs\n.* lab\n
ready for tests          | What to do:\n  numpy is broken
here complete            | For `test` only: .venv is not there yet\n.* test\n
no requirements          | requirements.txt is not there
"""


@pytest.mark.parametrize(("situation", "said"), rows(DOCTOR, 2))
def test_doctor_names_the_fault_and_the_command(situation, said, world, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "look_inside", lambda python: "numpy is broken")
    meet(world, situation)
    capsys.readouterr()
    assert cli.main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert re.search(said, text), text
    monkeypatch.setattr(doctor, "look_inside", lambda python: "")
    cli.main(["doctor"])
    assert ("Nothing is missing." in capsys.readouterr().out) == (situation == "ready for tests")


# ---- really --------------------------------------------------------------------------------------------------------


def tiny_wheel(folder: Path, version: str, name: str = "tinycourse") -> None:
    """A wheel of one module, written by hand: no build, no network."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"version = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


def version_in(home: state.Home, name: str = "tinycourse") -> str:
    code = f"import {name}; print({name}.version)"
    return subprocess.run([home.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A course that needs one tiny package from a folder; pip reaches nothing else."""
    monkeypatch.setattr(environment, "activated", lambda: False)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    tiny_wheel(tmp_path / "wheels", "1.0")
    (tmp_path / "a course [1]").mkdir()
    (tmp_path / "a course [1]" / "requirements.txt").write_text("tinycourse==1.0\n")
    (tmp_path / "a course [1]" / "constraints.txt").write_text("")
    return state.Home(tmp_path / "a course [1]")


@pytest.mark.slow
def test_a_real_environment_is_made_used_broken_and_made_anew(tiny, capfd):
    assert environment.prepare(tiny.root) == tiny.python
    assert version_in(tiny) == "1.0"
    site = next(tiny.folder.rglob("tinycourse.py")).parent.relative_to(tiny.root)
    capfd.readouterr()
    environment.prepare(tiny.root)
    assert capfd.readouterr().out == "", "the second time nothing is done"
    for damage in (
        lambda: tiny.python.unlink(),
        lambda: (tiny.folder / "pyvenv.cfg").unlink(),
        lambda: (tiny.root / site / "tinycourse-1.0.dist-info" / "RECORD").unlink(),  # as a killed pip leaves it
        lambda: (tiny.root / site / "tinycourse-1.0.dist-info").rename(tiny.root / site / "~inycourse-1.0.dist-info"),
    ):
        damage()
        environment.prepare(tiny.root)
        assert version_in(tiny) == "1.0" and "It is made now" in capfd.readouterr().out

    moved = state.Home(tiny.root.rename(tiny.root.with_name("moved")))
    environment.prepare(moved.root)
    subprocess.run([moved.python.with_name("pip"), "--version"], check=True)

    (moved.root / "requirements.txt").write_text("tinycourse==2.0\n")
    with pytest.raises(SetupError, match=r"tinycourse==2\.0"):
        environment.prepare(moved.root)
    assert version_in(moved) == "1.0" and [path.name for path in moved.root.glob(".venv.*")] == [".venv.lock"]


@pytest.mark.slow
def test_pip_prefers_the_cpu_build_of_a_second_index(tiny, tmp_path, monkeypatch):
    """What `--cpu` rests on: 1.0+cpu satisfies ==1.0 and is taken before 1.0, wherever it comes from."""
    tiny_wheel(tmp_path / "wheels", "1.0", "torch")
    tiny_wheel(tmp_path / "cpu", "1.0+cpu", "torch")
    (tiny.root / "requirements.txt").write_text("torch==1.0\ntinycourse==1.0\n")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path / 'wheels'} {tmp_path / 'cpu'}")
    environment.prepare(tiny.root, cpu=True)
    assert version_in(tiny, "torch") == "1.0+cpu" and version_in(tiny) == "1.0"
