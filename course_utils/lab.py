"""Copying the lessons to `my_course/`, where a learner works. Nothing that is there is ever overwritten."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from course_utils import strict
from course_utils.environment import CALL, SetupError, say
from course_utils.syllabus import LESSONS, ROOT

RECORD = ".shipped.json"


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def read_record(folder: Path) -> dict[str, str]:
    """Which version of each lesson was copied (its SHA-256). A record that cannot be read counts as empty."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(record, dict):
        return {}
    return {name: value for name, value in record.items() if isinstance(value, str)}


def put(source: Path, target: Path) -> None:
    """Copies through a second name, so that an interruption leaves no half lesson under the real one."""
    part = target.with_name(f".{target.name}.part")
    part.write_bytes(source.read_bytes())
    os.replace(part, target)


def copy_lessons(root: Path = ROOT) -> list[str]:
    """Copies each lesson that `my_course/` lacks, and returns the names of those that have become newer since."""
    folder = root / "my_course"
    try:
        folder.mkdir(exist_ok=True)
        record, newer = read_record(folder), []
        for source in sorted((root / "notebooks").glob("*.ipynb")):
            target, shipped = folder / source.name, digest(source)
            if not os.path.lexists(target):
                put(source, target)
                record[source.name] = shipped
            elif record.setdefault(source.name, shipped) != shipped:
                newer.append(source.name)
        (folder / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
    except OSError as error:
        raise SetupError(f"The lessons cannot be copied to {folder}: {error}") from None
    return newer


def tell_newer(newer: list[str]) -> None:
    if newer:
        say(
            f"A newer version exists of: {', '.join(newer)}. Your copies in my_course/ stay as they are. "
            f"For the new one, rename or delete your copy and run `{CALL} lab` again."
        )


def first_page(root: Path = ROOT) -> Path:
    """What JupyterLab opens: lesson 00, or the folder as long as no lesson exists."""
    lesson = root / "my_course" / f"{LESSONS[0].stem}.ipynb"
    return lesson if lesson.exists() else lesson.parent


def jupyter_arguments(page: Path, extra: list[str]) -> list[str]:
    """`-m jupyterlab` rather than the `jupyter` script, whose first line goes stale when the course is moved."""
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 and "--allow-root" not in extra else []
    # The address that is printed (for `--no-browser`, or another computer's browser) leads to the lesson too.
    address = [f"--LabApp.default_url=/lab/tree/{page.name}"] if page.suffix == ".ipynb" else []
    if any(one.startswith("--LabApp.default_url") for one in extra):
        address = []
    return ["-m", "jupyterlab", str(page), *as_root, *address, *extra]


def jupyter_variables(variables: dict[str, str]) -> dict[str, str]:
    """The variables for JupyterLab: what would change a learner's lessons is taken out, our settings are added.

    Our settings switch off the question whether JupyterLab may fetch news: the course needs no internet.
    """
    kept = {name: value for name, value in variables.items() if name not in strict.VARIABLES}
    folders = [str(Path(__file__).parent / "jupyter"), *filter(None, [variables.get("JUPYTER_CONFIG_PATH")])]
    return {**kept, "JUPYTER_CONFIG_PATH": os.pathsep.join(folders)}
