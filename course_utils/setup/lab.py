"""Copying the lessons to `my_course/`, where a learner works, and opening them. What is there is never overwritten."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

from course_utils import strict
from course_utils.cache import write_atomically
from course_utils.setup import CALL, say

RECORD = ".shipped.json"


def read_record(folder: Path) -> dict[str, str]:
    """Which version of each lesson was copied (its SHA-256). A record that cannot be read knows nothing."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def copy_lessons(root: Path) -> tuple[list[str], list[str]]:
    """Copies each lesson that `my_course/` lacks. Returns those that have become newer since, and those of which
    nobody knows: their copy differs from today's, and the record of what was copied does not name it.
    """
    folder, newer, unknown = root / "my_course", [], []
    folder.mkdir(exist_ok=True)
    record = read_record(folder)
    for source in sorted((root / "notebooks").glob("*.ipynb")):
        name, target, lesson = source.name, folder / source.name, source.read_bytes()
        shipped, before = hashlib.sha256(lesson).hexdigest(), record.get(name)
        if not os.path.lexists(target):
            write_atomically(target, lesson)
            record[name] = shipped
        elif before is None and target.read_bytes() == lesson:
            record[name] = shipped
        elif before != shipped:
            (newer if isinstance(before, str) else unknown).append(name)
        if record.get(name) != before:  # at once: an interruption must not make it forget what it has copied
            write_atomically(folder / RECORD, json.dumps(record, indent=1).encode())
    return newer, unknown


def tell(root: Path, newer: list[str], unknown: list[str]) -> None:
    """Says what a learner should know before JupyterLab opens."""
    cure = f"For the new one, rename or delete your copy and run `{CALL} lab` again."
    if newer:
        say(f"A newer version exists of: {', '.join(newer)}. Your copies in my_course/ stay as they are. {cure}")
    if unknown:
        say(f"These copies may be older than the lessons, their record is lost: {', '.join(unknown)}. {cure}")
    if re.search(r"[\[\]*?]", str(root)):  # JupyterLab takes its own path for a pattern, and finds no settings
        say(f"In a folder with one of []*? in its path JupyterLab lacks menus. Better rename the folder: {root}")


def jupyter_arguments(root: Path, extra: list[str]) -> list[str]:
    """`-m jupyterlab`: the `jupyter` script need not be on the path of an environment that is not switched on."""
    return ["-m", "jupyterlab", str(root / "my_course"), *extra]


def jupyter_variables(variables: dict[str, str]) -> dict[str, str]:
    """The variables for JupyterLab: what would change a learner's lessons is taken out, our settings are added.

    Our settings open lesson 00, wherever the address that is printed is used, let root start the server, and switch
    off the question whether JupyterLab may fetch news: the course needs no internet.
    """
    kept = {name: value for name, value in variables.items() if name not in strict.VARIABLES}
    folders = [str(Path(__file__).parent / "jupyter"), *filter(None, [variables.get("JUPYTER_CONFIG_PATH")])]
    return {**kept, "JUPYTER_CONFIG_PATH": os.pathsep.join(folders)}
