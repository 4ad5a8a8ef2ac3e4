"""Setting the course up on somebody's computer: the environment, the copies of the lessons, the doctor.

Standard library only: this room is used before anything is installed. And an older Python must be able to run it,
since it is here that a learner hears that theirs is too old.
"""

from __future__ import annotations

import os

OLDEST, NEWEST = (3, 11), (3, 13)
CALL = "python -m course_utils" if os.name == "nt" else "python3 -m course_utils"


class SetupError(Exception):
    """Something the learner can put right. The message says what happened and what to do."""


def say(text: str) -> None:
    """Prints at once, so that our lines and those of the programs we start stay in order."""
    print(text, flush=True)
