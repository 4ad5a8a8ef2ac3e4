"""The version of the course: the time and the name of its commit, so that every commit has another one, a later one
after an earlier one. pip then sees that what it has (in Colab, say) is not what the repository has now.

The build reads it (see pyproject.toml), from wherever it finds the commit: the repository, an archive of it, in which
git has filled in the line COMMIT, or a source package, whose PKG-INFO holds the version.
"""

import re
import subprocess
import time
from pathlib import Path

BASE = "0.1"
COMMIT = "$Format:%ct %H$"  # by `.gitattributes`, `git archive` writes time and name of the commit here
ROOT = Path(__file__).resolve().parent.parent.parent


def version(root: Path = ROOT, commit: str = COMMIT) -> str:
    """For example 0.1.20261130090812+gaa52a7413; 0.1 where nothing is known of the commit."""
    if (root / "PKG-INFO").is_file():
        return re.findall(r"^Version: (.+)$", (root / "PKG-INFO").read_text(encoding="utf-8"), re.MULTILINE)[0]
    if (root / ".git").exists():  # not that of a repository around this one
        command = ["git", "-C", str(root), "log", "-1", "--format=%ct %H"]
        try:
            commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            return BASE
    found = re.fullmatch(r"(\d+) ([0-9a-f]{9})[0-9a-f]*\s*", commit)
    return f"{BASE}.{time.strftime('%Y%m%d%H%M%S', time.gmtime(int(found[1])))}+g{found[2]}" if found else BASE
