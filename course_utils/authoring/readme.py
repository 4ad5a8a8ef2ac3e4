"""What the README shows of the lessons: their map, from the one list, and pictures, from the notebooks' outputs."""

import base64

from course_utils import syllabus
from course_utils.authoring import assemble

README = syllabus.ROOT / "README.md"
PICTURES = syllabus.ROOT / "data" / "pictures"
_SHOWN = {  # picture -> lesson and cell
    "attention_maps": ("attention_translator", "diagonal-and-mirror"),
    "bleu_by_length": ("attention_translator", "bleu-curves"),
}
_BEGIN, _END = "<!-- lessons: stamped by `build` -->", "<!-- end of lessons -->"


def lesson_map() -> str:
    """The table of all lessons; those that do not exist yet are marked so."""
    rows = ["| | lesson | what it shows |", "|---|---|---|"]
    for lesson in syllabus.LESSONS:
        title = f"[{lesson.title}](notebooks/{lesson.stem}.ipynb)" if lesson.ready else f"{lesson.title} *(to come)*"
        rows.append(f"| {lesson.number:02d} | {title} | {lesson.sentence} |")
    return "\n".join(rows)


def stamp() -> None:
    """Write the map into the README, and the pictures beside it."""
    README.write_text(_with_map(README.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
    PICTURES.mkdir(exist_ok=True)
    for name in _SHOWN:
        if picture := _picture(name):
            (PICTURES / f"{name}.png").write_bytes(picture)


def problems() -> list[str]:
    """What is stale in the README, in words."""
    text = README.read_text(encoding="utf-8")
    found = [] if _with_map(text) == text else ["README.md: the map of lessons is stale; run `build`"]
    for name in _SHOWN:
        path = PICTURES / f"{name}.png"
        if not path.exists() or path.read_bytes() != _picture(name):
            found.append(f"{path.name} is not the picture of its lesson; run `build`")
    return found


def _picture(name: str) -> bytes | None:
    """The PNG that the lesson's cell shows; None as long as the lesson has not been run."""
    lesson, cell_id = _SHOWN[name]
    notebook = assemble.read(syllabus.find(lesson).notebook)
    outputs = next((cell.outputs for cell in assemble.code_cells(notebook) if cell.id == cell_id), [])
    shown = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    return base64.b64decode(shown[0]) if shown else None


def _with_map(text: str) -> str:
    before, _, rest = text.partition(_BEGIN)
    after = rest.partition(_END)[2]
    return f"{before}{_BEGIN}\n{lesson_map()}\n{_END}{after}"
