"""The command line: `python3 -m course_utils VERB`. Standard library only, and quick to start."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from course_utils.grading import pytest_variables
from course_utils.setup import CALL, SetupError, environment, say
from course_utils.syllabus import ROOT

PLUGIN = "course_utils.grading.nbval_plugin"

HELP = """\
lab [--cpu] [JupyterLab's own arguments]
    Sets the course up, copies the lessons to my_course/ and opens them in JupyterLab.
    --cpu takes the PyTorch without CUDA, a much smaller download.
test [--all] [pytest's own arguments]
    Runs all tests: those of the package, and every lesson with the course's own answers.
    --all adds the slow ones. Paths replace the default ones (notebooks and tests).
grade [-j N] [NOTEBOOK ...]
    Checks the answers in your notebooks, and prints the points of each exercise.
    Without a name it takes all notebooks in my_course/; -j 4 runs four at a time.
build [NAME ...] [--check]
    For authors: runs the lessons solved and stores their outputs.
    --check changes nothing, and fails when a notebook is not up to date.
bench [NAME ...]
    For authors: makes a measured table again. Without a name it lists them.
doctor
    Shows versions, devices and folders, what is missing, and how to put it right."""

# Options of pytest whose value is the next word: that word is no path, even if a folder has its name.
TAKES_VALUE = {"-k", "-m", "-n", "-p", "-o", "-c", "-W", "-r", "--answers", "--report", "--dist"}
TAKES_VALUE |= {"--ignore", "--deselect"}


def take(flag: str, arguments: list[str]) -> tuple[bool, list[str]]:
    """Whether `flag` is among the arguments, and the others."""
    return flag in arguments, [one for one in arguments if one != flag]


def run_function(module: str, call: str, arguments: list[str], python: Path) -> int:
    """Calls a function of the package in the environment; `call` sees the arguments as `words`."""
    code = f"import sys; words = sys.argv[1:]; from {module} import main; sys.exit({call})"
    return environment.hand_over(python, ["-c", code, *arguments], environment.child_environment(python))


# ---- the verbs -----------------------------------------------------------------------------------------------------


def lab(arguments: list[str]) -> int:
    from course_utils.setup.lab import (
        copy_lessons,
        first_page,
        jupyter_arguments,
        jupyter_variables,
        tell_name,
        tell_newer,
    )

    cpu, extra = take("--cpu", arguments)
    python = environment.prepare(ROOT, cpu=cpu, exact=True)
    tell_newer(*copy_lessons(ROOT))
    tell_name(ROOT)
    variables = jupyter_variables(environment.child_environment(python))
    return environment.hand_over(python, jupyter_arguments(first_page(ROOT), extra), variables)


def split_paths(arguments: list[str], root: Path) -> tuple[list[str], list[str]]:
    """The arguments for pytest that are paths, seen from the repository, where pytest runs; and the others.

    Not made absolute: pytest takes brackets in the folder's own path for parameters.
    """
    paths, others = [], []
    for before, word in zip(["", *arguments], arguments, strict=False):
        place, mark, node = word.partition("::")
        if before not in TAKES_VALUE and not word.startswith("-") and os.path.exists(place):
            paths.append(f"{os.path.relpath(place, root)}{mark}{node}")
        else:
            others.append(word)
    return paths, others


def test_arguments(arguments: list[str], root: Path = ROOT) -> list[str]:
    """pytest's command line: in parallel by file, every notebook with the course's own answers."""
    everything, rest = take("--all", arguments)
    paths, options = split_paths(rest, root)
    default = [name for name in ("notebooks", "tests") if (root / name).is_dir()]
    return [
        *("-m", "pytest", "-n", "2", "--dist", "loadfile"),
        *("-p", PLUGIN, "--nbval", "--answers", "reference"),
        *("--nbval-current-env", "--nbval-cell-timeout=300"),
        *("-p", "no:randomly"),  # a plug-in that would shuffle the cells of a notebook
        *([] if everything else ["-m", "not slow"]),
        *options,
        *(paths or default),
    ]


def test(arguments: list[str]) -> int:
    cpu, rest = take("--cpu", arguments)
    python = environment.prepare(ROOT, tests=True, cpu=cpu, exact=True)
    variables = pytest_variables(environment.child_environment(python))
    return environment.hand_over(python, test_arguments(rest), variables)


def grade(arguments: list[str]) -> int:
    cpu, rest = take("--cpu", arguments)
    jobs, names = jobs_of(rest)
    notebooks = [Path(name).absolute() for name in names] or sorted((ROOT / "my_course").glob("*.ipynb"))
    if not notebooks:
        raise SetupError(f"There is no notebook in my_course/ yet. `{CALL} lab` puts the lessons there.")
    python = environment.prepare(ROOT, cpu=cpu)
    return run_function("course_utils.grading.grade", f"main(words, jobs={jobs})", [*map(str, notebooks)], python)


def jobs_of(arguments: list[str]) -> tuple[int, list[str]]:
    """The number after `-j`, and the other arguments."""
    if "-j" not in arguments:
        return 1, arguments
    place = arguments.index("-j")
    number = arguments[place + 1 : place + 2]
    if not (number and number[0].isdecimal() and int(number[0])):
        raise SetupError("-j needs a number from 1: how many notebooks run at the same time.")
    return int(number[0]), arguments[:place] + arguments[place + 2 :]


def build(arguments: list[str]) -> int:
    cpu, rest = take("--cpu", arguments)
    check, names = take("--check", rest)
    python = environment.prepare(ROOT, tests=True, cpu=cpu, exact=True)
    return run_function("course_utils.authoring.build", f"main(words, check={check})", names, python)


def bench(arguments: list[str]) -> int:
    cpu, names = take("--cpu", arguments)
    python = environment.prepare(ROOT, cpu=cpu)
    return run_function("course_utils.benchmarks", "main(words)", names, python)


def doctor(arguments: list[str]) -> int:
    from course_utils.setup.doctor import examine

    return examine(ROOT)


VERBS: dict[str, Callable[[list[str]], int]] = {
    "lab": lab,
    "test": test,
    "grade": grade,
    "build": build,
    "bench": bench,
    "doctor": doctor,
}


def main(arguments: list[str]) -> int:
    """Exit code: 0 done, 1 could not be done, 2 not understood, otherwise that of the program that was run."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a console without ✓ or √ shows ? rather than a traceback
    try:
        return run(arguments)
    except SetupError as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    except BrokenPipeError:  # the reader has left, as in `doctor | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("\nStopped. The same command starts again; what was downloaded is kept.", file=sys.stderr, flush=True)
        return 130


def run(arguments: list[str]) -> int:
    verb, rest = (arguments or ["help"])[0], arguments[1:]
    if verb in ("-h", "--help", "help"):
        say(f"{CALL} VERB\n\n{HELP}")
        return 0
    if verb not in VERBS:
        print(f"There is no verb {verb!r}. The verbs are: {', '.join(VERBS)}.", file=sys.stderr)
        return 2
    if rest[:1] in (["-h"], ["--help"]):
        say(next(text for text in re.split(r"\n(?=\S)", HELP) if text.startswith(verb)))
        return 0
    if not environment.supported(sys.version_info[:2]):
        return environment.start_again(arguments, ROOT)
    return VERBS[verb](rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
