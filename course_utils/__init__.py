"""What the lessons share. `import course_utils` costs nothing: rooms open when they are used."""

from __future__ import annotations

from typing import Any

__all__ = ["start"]


def __getattr__(name: str) -> Any:
    if name == "start":
        from course_utils.exercises.lesson import start

        return start
    raise AttributeError(f"module 'course_utils' has no attribute {name!r}")
