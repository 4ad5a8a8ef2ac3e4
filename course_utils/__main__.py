"""The command line: `python3 -m course_utils VERB`. Standard library only, and quick to start."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from course_utils.grading import pytest_variables
from course_utils.setup import CALL, SetupError, environment, say
from course_utils.setup.advice import for_text
from course_utils.setup.state import supported
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


def number(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError("needs a number from 1: how many notebooks run at the same time")
    return int(text)


def understand(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our own options, and the other words, in their order."""
    parser = argparse.ArgumentParser(usage=f"{CALL} VERB --help", add_help=False, allow_abbrev=False)
    for flag in ("--cpu", "--all", "--check"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("-j", type=number, default=1)
    return parser.parse_known_args(words)


def run_function(module: str, call: str, words: list[str], python: Path) -> int:
    """Calls a function of the package in the environment; `call` sees the words as `words`."""
    code = f"import sys; words = sys.argv[1:]; from {module} import main; sys.exit({call})"
    return environment.hand_over(python, ["-c", code, *words], environment.child_environment(python))


# ---- the verbs -----------------------------------------------------------------------------------------------------


def lab(options: argparse.Namespace, words: list[str]) -> int:
    from course_utils.setup.lab import copy_lessons, jupyter_arguments, jupyter_variables, tell

    newer, unknown = copy_lessons(ROOT)
    python = environment.prepare(ROOT, cpu=options.cpu, exact=True)
    tell(ROOT, newer, unknown)
    variables = jupyter_variables(environment.child_environment(python))
    return environment.hand_over(python, jupyter_arguments(ROOT, words), variables)


def from_root(word: str) -> str:
    """A path as it is seen from the repository, where pytest runs. Not made absolute: pytest takes brackets in the
    folder's own path for parameters.
    """
    place, mark, node = word.partition("::")
    return f"{os.path.relpath(place, ROOT)}{mark}{node}" if os.path.exists(place) else word


def test(options: argparse.Namespace, words: list[str]) -> int:
    """In parallel by file, every notebook with the course's own answers."""
    python = environment.prepare(ROOT, tests=True, cpu=options.cpu, exact=True)
    arguments = [
        *("-m", "pytest", "-n", "2", "--dist", "loadfile"),
        *("-p", PLUGIN, "--nbval", "--answers", "reference"),
        *("--nbval-current-env", "--nbval-cell-timeout=300"),
        *([] if options.all else ["-m", "not slow"]),
        *map(from_root, words),
    ]
    return environment.hand_over(python, arguments, pytest_variables(environment.child_environment(python)))


def grade(options: argparse.Namespace, words: list[str]) -> int:
    notebooks = [Path(name).absolute() for name in words] or sorted((ROOT / "my_course").glob("*.ipynb"))
    if not notebooks:
        raise SetupError(f"There is no notebook in my_course/ yet. `{CALL} lab` puts the lessons there.")
    python = environment.prepare(ROOT, cpu=options.cpu)
    return run_function("course_utils.grading.grade", f"main(words, jobs={options.j})", [*map(str, notebooks)], python)


def build(options: argparse.Namespace, words: list[str]) -> int:
    python = environment.prepare(ROOT, tests=True, cpu=options.cpu, exact=True)
    return run_function("course_utils.authoring.build", f"main(words, check={options.check})", words, python)


def bench(options: argparse.Namespace, words: list[str]) -> int:
    return run_function("course_utils.benchmarks", "main(words)", words, environment.prepare(ROOT, cpu=options.cpu))


def doctor(options: argparse.Namespace, words: list[str]) -> int:
    from course_utils.setup.doctor import examine

    return examine(ROOT)


VERBS: dict[str, Callable[[argparse.Namespace, list[str]], int]] = {
    verb.__name__: verb for verb in (lab, test, grade, build, bench, doctor)
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
    except OSError as error:
        print(f"This could not be done: {error}\n{for_text(str(error))}", file=sys.stderr, flush=True)
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
    if not supported(sys.version_info[:2]):
        return environment.start_again(arguments, ROOT)
    return VERBS[verb](*understand(rest))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
