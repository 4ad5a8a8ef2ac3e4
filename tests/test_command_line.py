"""The command line: environment, lessons, verbs. No network and no PyTorch; the slow tests make a tiny environment."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from course_utils import __main__ as cli
from course_utils import doctor, environment, lab
from course_utils.environment import Home, Requirement, SetupError, Snapshot
from course_utils.syllabus import LESSONS, ROOT

HERE = tuple(sys.version_info[:2])


# ---- the verbs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_names_every_verb(arguments, capsys):
    assert cli.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines[2:] if not line.startswith(" ")} == set(cli.VERBS)
    assert all(len(entry) <= 3 for entry in cli.HELP.values()), "two lines a verb at most"


@pytest.mark.parametrize("verb", cli.VERBS)
def test_help_of_one_verb_starts_nothing(verb, capsys, monkeypatch):
    monkeypatch.setattr(environment, "prepare", lambda *_, **__: pytest.fail("help must not install"))
    assert cli.main([verb, "--help"]) == 0
    assert verb in capsys.readouterr().out


def test_unknown_verb(capsys):
    assert cli.main(["lob"]) == 2
    error = capsys.readouterr().err
    assert "lob" in error and "lab" in error


def test_start_imports_nothing_heavy():
    code = (
        "import sys, course_utils, course_utils.__main__, course_utils.lab, course_utils.doctor\n"
        "print(sorted({'torch', 'numpy', 'matplotlib', 'IPython', 'nbformat', 'pytest'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_ctrl_c_and_setup_errors_leave_no_traceback(monkeypatch, capsys):
    def interrupted(arguments):
        raise KeyboardInterrupt

    def impossible(arguments):
        raise SetupError("The disk is full.")

    monkeypatch.setitem(cli.VERBS, "lab", interrupted)
    assert cli.main(["lab"]) == 130
    monkeypatch.setitem(cli.VERBS, "lab", impossible)
    assert cli.main(["lab"]) == 1
    assert capsys.readouterr().err.endswith("The disk is full.\n")


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


def test_lab_passes_arguments_on_and_is_not_strict(handed_over, monkeypatch, tmp_path):
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "this one")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / f"{LESSONS[0].stem}.ipynb").write_text("{}")
    assert cli.main(["lab", "--cpu", "--no-browser", "--port", "9999"]) == 7
    arguments = handed_over["arguments"]
    assert handed_over["options"] == {"cpu": True}
    assert arguments[:3] == ["-m", "jupyterlab", str(tmp_path / "my_course" / "00_start_here.ipynb")]
    assert arguments[-3:] == ["--no-browser", "--port", "9999"] and "--cpu" not in arguments
    assert ("--allow-root" in arguments) == (hasattr(os, "geteuid") and os.geteuid() == 0)
    assert "PYTEST_CURRENT_TEST" not in handed_over["variables"]


def test_test_verb(handed_over, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert cli.main(["test"]) == 7
    assert handed_over["options"]["tests"] is True
    text = " ".join(handed_over["arguments"])
    assert "-n 2 --dist loadfile" in text and "--nbval --answers reference" in text and "-m not slow" in text
    assert handed_over["arguments"][-1] == "tests"
    assert handed_over["variables"]["OMP_NUM_THREADS"] == "1" and "MPLBACKEND" not in handed_over["variables"]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    cli.main(["test", "--all"])
    assert "not slow" not in handed_over["arguments"] and "--all" not in handed_over["arguments"]
    assert handed_over["variables"]["OMP_NUM_THREADS"] == "3"


def test_paths_given_to_test_replace_the_default(monkeypatch):
    monkeypatch.chdir(ROOT)
    node = "tests/test_command_line.py::test_unknown_verb"
    arguments = cli.test_arguments([node, "-x", "-k", "tests"])
    assert arguments[-4:] == ["-x", "-k", "tests", str(ROOT / node)]
    assert str(ROOT / "notebooks") not in arguments and "notebooks" not in arguments
    assert cli.test_arguments(["-k", "tests"])[-1] == "tests"


def test_build_and_bench_call_their_rooms(handed_over):
    assert cli.main(["build", "--check", "multi_head"]) == 7
    assert "course_utils.authoring.build import main" in handed_over["arguments"][1]
    assert "main(words, check=True)" in handed_over["arguments"][1] and handed_over["arguments"][2:] == ["multi_head"]
    assert handed_over["options"]["tests"] is True
    assert cli.main(["bench"]) == 7
    assert "course_utils.benchmarks import main" in handed_over["arguments"][1]


# ---- requirements --------------------------------------------------------------------------------------------------


def test_requirements_files_are_understood():
    text = '# comment\n\nnumpy==2.4.6  # why\nx[extra] >= 1 ; sys_platform == "nowhere"\nPy_Yaml\n-r other.txt\n-e .\n'
    assert environment.parse_requirements(text) == [
        Requirement("numpy", "2.4.6"),
        Requirement("Py_Yaml"),
        Requirement("course_utils", editable=True),
    ]


def test_the_courses_own_files_have_exact_versions():
    for one in environment.read_requirements(environment.requirement_files(ROOT, tests=True)):
        assert one.editable or one.pin, f"{one} is not pinned"


@pytest.mark.parametrize(
    ("marker", "holds"),
    [
        (f'sys_platform == "{sys.platform}"', True),
        (f"sys_platform != '{sys.platform}'", False),
        ('sys_platform == "nowhere"', False),
        (f'sys_platform == "{sys.platform}" and os_name == "{os.name}"', True),
        (f'sys_platform == "{sys.platform}" and os_name != "{os.name}"', False),
        ('something_else == "1"', False),
    ],
)
def test_markers(marker, holds):
    assert environment.marker_holds(marker) is holds


@pytest.mark.parametrize(
    ("installed", "pin", "same"),
    [
        ("2.13.0", "2.13.0", True),
        ("2.13.0+cpu", "2.13.0", True),
        ("2.13.0+cu130", "2.13.0", True),
        ("2.13.0", "2.13.0+cpu", False),
        ("2.13", "2.13.0", True),
        ("2.13.1", "2.13.0", False),
        ("2.1.0", "2.13.0", False),
        ("2.10", "2.1", False),
    ],
)
def test_versions(installed, pin, same):
    assert environment.same_version(installed, pin) is same


# ---- the environment: a world in which commands are only played ----------------------------------------------------


class World:
    """Plays venv, ensurepip and pip on files: `python` holds a version, `pip` and `packages` stand beside it."""

    def __init__(self, root: Path, monkeypatch) -> None:
        self.root, self.home = root, Home(root)
        self.log: list[str] = []
        self.commands: list[list[str]] = []
        self.pip_result: tuple[int, list[str]] = (0, [])
        (root / "tests").mkdir()
        (root / "requirements.txt").write_text("numpy==2.4.6\n")
        (root / "tests" / "requirements.txt").write_text("ruff==0.17.6\n")
        monkeypatch.setattr(environment, "look_into", self.look_into)
        monkeypatch.setattr(environment, "make", self.make)
        monkeypatch.setattr(environment, "give_pip", self.give_pip)
        monkeypatch.setattr(environment, "run_pip", self.run_pip)
        monkeypatch.setattr(environment, "active_python", lambda root: None)

    def state(self) -> dict:
        return json.loads(self.home.python.read_text())

    def set_state(self, **changes) -> None:
        self.home.python.write_text(json.dumps({**self.state(), **changes}))

    def look_into(self, python: Path, requirements) -> Snapshot | None:
        try:
            state = json.loads(python.read_text())
        except (OSError, ValueError):
            return None
        prefix = state.get("prefix", str(self.home.folder))
        return Snapshot(tuple(state["version"]), prefix, state["packages"], None, state["pip"], [])

    def make(self, home: Home) -> None:
        self.log.append("venv")
        home.bin.mkdir(parents=True, exist_ok=True)
        home.python.write_text(json.dumps({"version": HERE, "packages": {}, "pip": True}))

    def give_pip(self, home: Home, snapshot: Snapshot) -> bool:
        self.log.append("ensurepip")
        self.set_state(pip=True)
        return True

    def run_pip(self, command: list[str], root: Path) -> tuple[int, list[str]]:
        self.log.append("pip")
        self.commands.append(command)
        assert not self.home.note.exists(), "an interruption from here on must leave no note"
        if self.pip_result[0] == 0:
            wanted = environment.read_requirements([Path(one) for one in command if one.endswith("requirements.txt")])
            self.set_state(packages={**self.state()["packages"], **{one.name: one.pin for one in wanted}})
        return self.pip_result

    def prepare(self, **options) -> list[str]:
        """What was run, in order."""
        self.log.clear()
        self.commands.clear()
        assert environment.prepare(self.root, **options) == self.home.python
        return list(self.log)


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


def test_made_once_then_used_at_once(world):
    assert world.prepare() == ["venv", "pip"]
    assert world.prepare() == []
    assert world.prepare(tests=True) == ["pip"]
    assert world.prepare(tests=True) == []
    assert world.prepare() == []


def test_cpu_takes_pytorch_alone_from_the_index_of_cpu_wheels(world):
    (world.root / "requirements.txt").write_text("numpy==2.4.6\ntorch==2.13.0\n")
    assert world.prepare(cpu=True) == ["venv", "pip", "pip"]
    first, second = world.commands
    assert first[first.index("--extra-index-url") + 1] == environment.CPU_WHEELS
    assert first[-1] == "torch==2.13.0" and "--no-deps" in first
    assert "--extra-index-url" not in second and str(world.root / "requirements.txt") in second
    assert world.prepare() == [], "what --cpu has installed stays in use without it"
    (world.root / "requirements.txt").write_text("torch==2.14.0\n")
    assert world.prepare() == ["pip", "pip"], "the choice is remembered when the pins change"
    world.home.note.unlink()
    assert world.prepare() == ["pip"]


def test_changed_requirements_are_installed(world):
    world.prepare()
    (world.root / "requirements.txt").write_text("numpy==2.4.7\n")
    assert world.prepare() == ["pip"]
    assert world.prepare() == []


def test_installing_for_the_lessons_does_not_forget_the_tests(world):
    world.prepare(tests=True)
    (world.root / "requirements.txt").write_text("numpy==2.4.7\n")
    world.prepare()
    assert "tests/requirements.txt" in world.home.read_note()["files"]


def test_a_package_that_was_replaced_is_put_back(world):
    world.prepare()
    world.set_state(packages={"numpy": "2.1.0"})
    assert world.prepare() == ["pip"]


@pytest.mark.parametrize("note", [None, "", "no json", "[]", '{"files": 3}', '{"files": {}}'])
def test_without_a_readable_note_pip_runs_again(world, note):
    world.prepare()
    if note is None:
        world.home.note.unlink()
    else:
        world.home.note.write_text(note)
    assert world.prepare() == ["pip"]
    assert world.prepare() == []


def test_a_failed_installation_leaves_no_note(world):
    world.pip_result = (1, ["ERROR: something"])
    with pytest.raises(SetupError):
        world.prepare()
    assert not world.home.note.exists()
    world.pip_result = (0, [])
    assert world.prepare() == ["pip"]


def test_lost_pip_and_lost_python_are_repaired(world):
    world.prepare()
    world.set_state(pip=False)
    assert world.prepare() == ["ensurepip", "pip"]
    world.home.python.unlink()
    assert world.prepare() == ["venv", "pip"]
    world.home.python.write_text("broken")
    assert world.prepare() == ["venv", "pip"]


def test_a_python_that_takes_itself_for_the_systems_is_never_used(world):
    """As `.venv/bin/python` does without pyvenv.cfg: pip would change the Python outside."""
    world.prepare()
    world.set_state(prefix=sys.base_prefix, pip=False)
    assert world.prepare() == ["venv", "pip"]
    assert environment.bare_environment()["PIP_REQUIRE_VIRTUALENV"] == "1"


def test_python_that_cannot_be_repaired_is_made_from_nothing(world, monkeypatch):
    world.prepare()
    old = world.home.folder / "old"
    old.write_text("")
    world.home.python.write_text("broken")

    def make(home: Home) -> None:
        if old.exists():
            world.log.append("venv in vain")
        else:
            world.make(home)

    monkeypatch.setattr(environment, "make", make)
    assert world.prepare() == ["venv in vain", "venv", "pip"]


def test_an_environment_for_another_python_is_made_again(world):
    world.prepare()
    other = (3, 11) if HERE != (3, 11) else (3, 12)
    note = world.home.note.read_text()
    world.set_state(version=other)
    assert world.prepare() == ["venv", "pip"]
    # Without our note it is not ours to remove: it is used as it is.
    world.home.note.unlink()
    world.set_state(version=other)
    assert world.prepare() == ["pip"] and world.state()["version"] == list(other)
    # A Python that the course does not support is of no use to anybody.
    world.set_state(version=(3, 9))
    world.home.note.write_text(note)
    assert world.prepare() == ["venv", "pip"]


def test_a_moved_course_is_installed_again(world, tmp_path):
    world.prepare()
    world.home.note.write_text(world.home.note.read_text().replace(tmp_path.name, "elsewhere"))
    assert world.prepare() == ["pip"]


def test_an_unsupported_python_is_named(world, monkeypatch):
    monkeypatch.setattr(environment.sys, "version_info", (3, 9, 1))
    with pytest.raises(SetupError, match=r"This is Python 3\.9\. The course needs Python 3\.11 to 3\.13"):
        world.prepare()
    assert world.log == []
    monkeypatch.undo()


def test_a_file_in_the_way(world):
    world.home.folder.write_text("")
    with pytest.raises(SetupError, match="Move it away"):
        world.prepare()


def test_the_active_environment_is_used_if_it_has_everything(world, monkeypatch, capsys):
    active = world.root / "active"
    active.write_text(json.dumps({"version": HERE, "packages": {"numpy": "2.4.6+mine"}, "pip": False}))
    monkeypatch.setattr(environment, "active_python", lambda root: active)
    assert environment.prepare(world.root) == active and world.log == []
    assert world.prepare(tests=True) == ["venv", "pip"]
    assert "lacks ruff==0.17.6" in capsys.readouterr().out


def test_without_the_repository(tmp_path):
    with pytest.raises(SetupError, match=r"requirements\.txt"):
        environment.prepare(tmp_path)


def test_editable_means_from_this_folder():
    wanted = [Requirement("course_utils", editable=True)]
    for course, missing in ((str(ROOT / "course_utils" / "__init__.py"), 0), ("/elsewhere/course_utils/x.py", 1)):
        snapshot = Snapshot(HERE, "", {"course_utils": "0.1"}, course, True, [])
        assert len(environment.lacking(snapshot, wanted, ROOT)) == missing


def test_what_an_interrupted_pip_left_is_removed(tmp_path):
    for name in ("whole-1.dist-info", "half-1.dist-info", "~orch", "whole"):
        (tmp_path / name).mkdir()
    (tmp_path / "whole-1.dist-info" / "RECORD").write_text("")
    environment.heal_packages(Snapshot(HERE, "", {}, None, True, [str(tmp_path)]))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["whole", "whole-1.dist-info"]


# ---- when it fails -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("NewConnectionError: [Errno -3] Temporary failure in name resolution", "connection"),
        ("ERROR: No matching distribution found for torch==2.13.0", "64-bit Python"),
        ("ERROR: Package 'x' requires a different Python: 3.9.1 not in '>=3.11' (Requires-Python)", "3.11 to 3.13"),
        ("created because ensurepip is not available. apt install python3.12-venv", "python3-venv"),
        ("SSLError(SSLCertVerificationError", "PIP_CERT"),
        ("OSError: [Errno 13] Permission denied: 'x'", "who owns"),
        ("ERROR: something new", "doctor"),
    ],
)
def test_a_failure_says_what_to_do(line, advice):
    text = environment.failure(["python", "-m", "pip"], 1, ["Collecting torch", line])
    assert advice in text and line in text and "exit code 1" in text and "python -m pip" in text


def test_unreachable_index_is_a_matter_of_the_network():
    lines = [
        "WARNING: Retrying after connection broken by 'NewConnectionError(...)'",
        "ERROR: No matching distribution",
    ]
    assert "connection" in environment.failure(["pip"], 1, lines)


def test_a_failing_pip_ends_with_exit_code_1(world, monkeypatch, capsys):
    world.pip_result = (1, ["ERROR: [Errno 28] No space left on device"])
    monkeypatch.setattr(cli, "ROOT", world.root)
    assert cli.main(["lab"]) == 1
    error = capsys.readouterr().err
    assert "disk is full" in error and "pip install" in error and "Traceback" not in error


def test_a_failing_venv_is_explained(tmp_path, monkeypatch):
    said = "The virtual environment was not created successfully because ensurepip is not available."
    done = subprocess.CompletedProcess([], 1, stdout=said)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(SetupError, match="sudo apt install python3-venv"):
        environment.make(Home(tmp_path))


def test_pips_own_variables_are_passed_on(monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    variables = environment.bare_environment()
    assert variables["PIP_INDEX_URL"] == "https://mirror.example/simple" and "PYTHONPATH" not in variables


def test_errors_of_pip_are_shown_and_kept(tmp_path, capfd):
    command = [sys.executable, "-c", "import sys; print('loading'); print('ERROR: no', file=sys.stderr); sys.exit(3)"]
    assert environment.run_pip(command, tmp_path) == (3, ["ERROR: no"])
    captured = capfd.readouterr()
    assert "loading" in captured.out and "ERROR: no" in captured.err


# ---- my_course/ ----------------------------------------------------------------------------------------------------


@pytest.fixture
def shelf(tmp_path):
    """A course with two lessons."""
    (tmp_path / "notebooks").mkdir()
    for name in ("00_a", "01_b"):
        (tmp_path / "notebooks" / f"{name}.ipynb").write_text(f"shipped {name}")
    return tmp_path


def test_lessons_are_copied_once_and_never_overwritten(shelf):
    assert lab.copy_lessons(shelf) == []
    mine = shelf / "my_course" / "00_a.ipynb"
    assert mine.read_text() == "shipped 00_a"
    mine.write_text("my answers")
    assert lab.copy_lessons(shelf) == []
    assert mine.read_text() == "my answers"
    assert not list((shelf / "my_course").glob(".*.part"))


def test_a_newer_lesson_is_named_and_comes_when_the_copy_goes(shelf, capsys):
    lab.copy_lessons(shelf)
    mine = shelf / "my_course" / "01_b.ipynb"
    mine.write_text("my answers")
    (shelf / "notebooks" / "01_b.ipynb").write_text("shipped anew")
    assert lab.copy_lessons(shelf) == lab.copy_lessons(shelf) == ["01_b.ipynb"]
    assert mine.read_text() == "my answers"
    lab.tell_newer(["01_b.ipynb"])
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "01_b.ipynb" in said and "rename or delete" in said
    mine.rename(mine.with_name("mine.ipynb"))
    assert lab.copy_lessons(shelf) == []
    assert mine.read_text() == "shipped anew"
    assert mine.with_name("mine.ipynb").read_text() == "my answers"


@pytest.mark.parametrize("record", ["", "{", "[]", '{"00_a.ipynb": 3}', "\xff"])
def test_a_corrupt_record_counts_as_empty(shelf, record):
    lab.copy_lessons(shelf)
    mine = shelf / "my_course" / "00_a.ipynb"
    mine.write_text("my answers")
    (shelf / "my_course" / lab.RECORD).write_bytes(record.encode("latin-1"))
    assert lab.copy_lessons(shelf) == []
    assert mine.read_text() == "my answers"
    (shelf / "notebooks" / "00_a.ipynb").write_text("shipped anew")
    assert lab.copy_lessons(shelf) == ["00_a.ipynb"], "from then on it is watched again"


def test_a_file_called_my_course_is_explained(shelf):
    (shelf / "my_course").write_text("")
    with pytest.raises(SetupError, match="cannot be copied"):
        lab.copy_lessons(shelf)


# ---- the doctor ----------------------------------------------------------------------------------------------------


def test_doctor_survives_broken_packages(tmp_path, monkeypatch):
    """A package that dies on import is one line, and the others are still looked at."""
    for name, body in (("torch", "raise OSError('libcuda is broken\\nand more')"), ("numpy", "import os; 1 / 0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(body)
        info = tmp_path / f"{name}-9.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import course_utils.doctor as d; d.look_inside()"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True)
    answer = json.loads(done.stdout.splitlines()[-1].removeprefix(doctor.SIGN))
    assert answer["packages"]["torch"] == ["9", "OSError: libcuda is broken"]
    assert answer["packages"]["numpy"] == ["9", "ZeroDivisionError: division by zero"]
    assert answer["packages"]["nbval"] == [None, None]
    assert "libcuda" in answer["device"]


def test_doctor_reports_a_process_that_dies(monkeypatch, capsys, tmp_path):
    done = subprocess.CompletedProcess([], -11, stdout="", stderr="Segmentation fault")
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: done)
    assert "Segmentation fault" in doctor.ask(Path(sys.executable))["error"]


def test_doctor_without_an_environment(world, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "ask", lambda python: {"packages": {"torch": ("2.13.0", "ImportError: no")}})
    assert doctor.examine(world.root) == 0
    said = capsys.readouterr().out
    assert "not set up yet" in said and "course_utils lab" in said
    assert "torch 2.13.0 is broken: ImportError: no" in said


def test_doctor_names_what_differs_and_the_command(world, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "ask", lambda python: {"error": "dead"})
    world.prepare()
    world.set_state(packages={"numpy": "2.1.0"})
    doctor.examine(world.root)
    said = capsys.readouterr().out
    assert "numpy==2.4.6 (2.1.0 is installed)" in said and "dead" in said
    assert "ruff==0.17.6 (not installed), needed for `test` only" in said
    world.prepare(tests=True)
    doctor.examine(world.root)
    assert "Nothing is missing." in capsys.readouterr().out


# ---- really ---------------------------------------------------------------------------------------------------------


def tiny_wheel(folder: Path, version: str, name: str = "tinycourse") -> None:
    """A wheel of one module, written by hand: no build, no network."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"version = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


def version_in(home: Home, name: str = "tinycourse") -> str:
    code = f"import {name}; print({name}.version)"
    return subprocess.run([home.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A course that needs one tiny package from a folder; pip reaches nothing else."""
    monkeypatch.setattr(environment, "active_python", lambda root: None)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    tiny_wheel(tmp_path / "wheels", "1.0")
    (tmp_path / "course").mkdir()
    (tmp_path / "course" / "requirements.txt").write_text("tinycourse==1.0\n")
    return Home(tmp_path / "course")


@pytest.mark.slow
def test_a_real_environment_is_made_used_broken_and_repaired(tiny, capfd):
    assert environment.prepare(tiny.root) == tiny.python
    assert version_in(tiny) == "1.0"
    assert "about" in capfd.readouterr().out
    environment.prepare(tiny.root)
    assert capfd.readouterr().out == "", "the second time nothing is done"

    site = Path(tiny.look([]).site[0])
    shutil.rmtree(site / "pip")
    environment.prepare(tiny.root)
    assert tiny.look([]).pip

    tiny.python.unlink()
    environment.prepare(tiny.root)
    assert version_in(tiny) == "1.0"

    (tiny.folder / "pyvenv.cfg").unlink()
    assert tiny.look([]) is None
    environment.prepare(tiny.root)
    assert Path(tiny.look([]).prefix).resolve() == tiny.folder.resolve() and version_in(tiny) == "1.0"

    # As pip leaves a package when it is killed while it copies.
    (site / "tinycourse.py").unlink()
    (site / "tinycourse-1.0.dist-info" / "RECORD").unlink()
    tiny.note.unlink()
    environment.prepare(tiny.root)
    assert version_in(tiny) == "1.0"

    (tiny.root / "requirements.txt").write_text("tinycourse==2.0\n")
    with pytest.raises(SetupError, match=r"tinycourse==2\.0"):
        environment.prepare(tiny.root)
    assert not tiny.note.exists()


@pytest.mark.slow
def test_pip_prefers_the_cpu_build_of_a_second_index(tiny, tmp_path, monkeypatch):
    """What `--cpu` rests on: 1.0+cpu satisfies ==1.0 and is taken before 1.0, wherever it comes from."""
    tiny_wheel(tmp_path / "wheels", "1.0", "torch")
    tiny_wheel(tmp_path / "cpu", "1.0+cpu", "torch")
    (tiny.root / "requirements.txt").write_text("torch==1.0\ntinycourse==1.0\n")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path / 'wheels'} {tmp_path / 'cpu'}")
    environment.prepare(tiny.root, cpu=True)
    assert version_in(tiny, "torch") == "1.0+cpu" and version_in(tiny) == "1.0"
