"""The README's map of lessons, stamped from the one list."""

from course_utils import syllabus

README = syllabus.ROOT / "README.md"
_BEGIN, _END = "<!-- lessons: stamped by `build` -->", "<!-- end of lessons -->"


def lesson_map() -> str:
    """The table of all lessons; those that do not exist yet are marked so."""
    rows = ["| | lesson | what it shows |", "|---|---|---|"]
    for lesson in syllabus.LESSONS:
        title = f"[{lesson.title}](notebooks/{lesson.stem}.ipynb)" if lesson.ready else f"{lesson.title} *(to come)*"
        rows.append(f"| {lesson.number:02d} | {title} | {lesson.sentence} |")
    return "\n".join(rows)


def stamp() -> None:
    """Write the map into the README."""
    README.write_text(_with_map(README.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")


def problems() -> list[str]:
    text = README.read_text(encoding="utf-8")
    return [] if _with_map(text) == text else ["README.md: the map of lessons is stale; run `build`"]


def _with_map(text: str) -> str:
    before, _, rest = text.partition(_BEGIN)
    after = rest.partition(_END)[2]
    return f"{before}{_BEGIN}\n{lesson_map()}\n{_END}{after}"
