"""What a failed command leaves the learner with: its last useful lines, its name, and the cause in plain words."""

from __future__ import annotations

import os
import re
import subprocess

from course_utils.setup import CALL

# What may have been said, then what to do. The first that is found decides: a cause stands before what it leads to (no
# connection ends in "no version").
ADVICE = r"""
exit code (-9|137)$
The system stopped it, most likely because memory ran out. Close other programs and try again.

No space left on device|Errno 28|Errno 122|not enough space
The disk is full, or the one for temporary files is (the variable TMPDIR names another). The environment takes about
9 GB with CUDA, 3 GB with `--cpu`, and as much again while an old .venv is still there: you may delete that one.
`pip cache purge` frees what pip keeps.

Read-only file system|Errno 30
This disk cannot be written. Clone the course into a folder of your own, such as your home folder.

contains the PATH separator
The course's folder has a character in its path that no environment may have. Rename the folder.

No module named '?(venv|ensurepip)|ensurepip is not available|python3(\.\d+)?-venv
This Python cannot make environments: a part of it is missing. On Debian or Ubuntu install that part:
    sudo apt install python3-venv     (for another version: python3.12-venv)
Elsewhere take the Python from python.org, conda or pyenv.

Configuration file (could not be|contains)|during configuration: option|exit code 3$
pip's own settings cannot be read: a pip.conf (pip.ini on Windows), or a variable PIP_… .
Correct what the lines above name. `python3 -m pip config debug` lists the files.

proxy URL|Failed to parse|SOCKS|ProxyError|Tunnel connection failed
The proxy is no address, or does not answer. Correct its setting or remove it. Set is: {proxies}.

CERTIFICATE_VERIFY_FAILED|SSLError
A secure connection was refused. Behind a company's or a university's proxy, give pip its certificate: set PIP_CERT to
the file.

name resolution|Name or service not known|nodename nor servname|getaddrinfo failed|NewConnectionError|timed? ?out\
|Network is unreachable|Max retries exceeded|Connection (refused|reset|aborted)
The package index was not reached. Check the connection (and HTTPS_PROXY behind a proxy), then run the command again:
what is already downloaded is kept.

No matching distribution|Could not find a version|Requires-Python|not a supported wheel
The index has no such version for this computer, or it was not reached. The course needs a 64-bit Python 3.11 to 3.13;
PyTorch has no wheels for Macs with an Intel processor. If PIP_INDEX_URL points to a mirror, the mirror may be behind.

Permission denied|Errno 13|Access is denied|WinError (5|32)\b
A file could not be written or started. Close every program that may use it (JupyterLab, an editor, a terminal), and
check who owns the folder.

File exists|Not a directory|Errno 17|WinError 183
There is a file where a folder must be. Rename the file.
"""


def for_text(text: str) -> str:
    """What to do about an error that says `text`."""
    for entry in ADVICE.replace("\\\n", "").strip().split("\n\n"):
        pattern, words = entry.split("\n", 1)
        if re.search(pattern, text, re.IGNORECASE):
            return words.replace("{proxies}", proxies())
    return f"Run the command again. `{CALL} doctor` shows more."


def proxies() -> str:
    """The names of the variables that set a proxy, not their values: these may hold a password."""
    names = [name for name in os.environ if re.fullmatch(r"((https?|all)_proxy|PIP_PROXY)", name, re.IGNORECASE)]
    return ", ".join(sorted(names)) or "no variable (look into `pip config list`)"


def failure(command: list[str], code: int, lines: list[str]) -> str:
    """The message about a command that ended with this exit code, having said these lines."""
    errors = [line for line in lines if re.match(r"\s*(ERROR|error|OSError|Error)", line)]
    useful = errors or [line for line in lines if line and not line.startswith("WARNING")]
    what_to_do = for_text("\n".join([*lines, f"exit code {code}"]))
    named = ["", f"This command failed (exit code {code}):", f"    {subprocess.list2cmdline(command)}", "", what_to_do]
    return "\n".join(["", *useful[-6:], *named])
