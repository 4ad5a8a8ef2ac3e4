"""What a learner sees: the first lessons opened by a browser in JupyterLab, where all their cells are run.

Later lessons are made of the same kinds of cells and outputs, and would take minutes more.
Needs playwright (tests/requirements.txt) and a Chromium from the system, such as Debian's package; no other browser
is fetched. With COURSE_SCREENSHOTS set to a folder, pictures of each lesson are left there.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import nbformat
import pytest

from course_utils.authoring.assemble import code_cells, read, role
from course_utils.setup.environment import child_environment
from course_utils.setup.lab import copy_lessons, jupyter_arguments, jupyter_variables
from course_utils.syllabus import LESSONS, ROOT, LessonInfo

pytestmark = pytest.mark.slow

OPENED = LESSONS[:3]
START_SECONDS, RUN_SECONDS = 90, 240

# No sandbox: Chromium refuses one for root, which a container often is. The others keep it off the internet.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
WIDTH, HEIGHT, TALL = 1366, 1000, 3000  # pixels: of the window, and for pictures


# ---- browser and server --------------------------------------------------------------------------------------------


def missing(what: str) -> NoReturn:
    """Skips where a tool is missing. In CI it fails: skipped unseen, the lessons would be looked at nowhere."""
    pytest.fail(what) if os.environ.get("CI") else pytest.skip(what)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        missing("there is no Chromium here (Debian: apt-get install chromium)")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def opened_page(browser: Any, lesson: LessonInfo) -> Generator[Any]:
    """An empty page, closed before the server: a server waits long for a page that is still connected."""
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    try:
        yield page
    except BaseException:
        leave_picture(page, f"{lesson.stem}_failed")
        raise
    finally:
        page.close()


def leave_picture(page: Any, name: str) -> None:
    folder = os.environ.get("COURSE_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png")


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def learners_variables(home: Path) -> dict[str, str]:
    """A learner's environment; settings and histories are empty, as on the first day."""
    variables = jupyter_variables(child_environment(Path(sys.executable)))
    variables.pop("MPLBACKEND", None)  # it would change how the kernel draws
    own = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    return variables | {name: str(home / name.lower()) for name in own}


def wait_for_server(server: subprocess.Popen, port: int, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text(errors='replace')[-3000:]}")


@contextmanager
def jupyterlab(home: Path) -> Generator[str]:
    """Serve `home`/my_course as our command `lab` does, and give the address; nothing is left running.

    The command itself would first make an environment for the copy. Everything after that is its own code.
    """
    port = free_port()
    options = ["--no-browser", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"]
    arguments = jupyter_arguments(home, [*options, "--IdentityProvider.token="])
    log = home / "server.log"
    with log.open("wb") as output:
        command = [sys.executable, *arguments]
        variables = learners_variables(home)
        server = subprocess.Popen(command, cwd=home, env=variables, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_for_server(server, port, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()  # it stops its kernels; one that it leaves ends when it sees that its parent is gone
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


# ---- a lesson in it ------------------------------------------------------------------------------------------------

IDLE = r"#jp-main-statusbar >> text=/Python 3.*\| Idle/"  # the notebook's own mark says so even without a kernel
CELLS = "[...document.querySelectorAll('.jp-Notebook .jp-Cell')]"
PANEL = "document.querySelector('.jp-WindowedPanel-outer')"
PROMPTS = "[...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')]"


def open_lesson(page: Any, address: str, cells: int) -> None:
    page.goto(address, timeout=START_SECONDS * 1000)
    # The cells arrive little by little. "Run All Cells" before the last one and the kernel are there does nothing.
    page.wait_for_function(f"{CELLS}.length == {cells}", timeout=START_SECONDS * 1000)
    page.wait_for_selector(IDLE, timeout=START_SECONDS * 1000)


def run_all_cells(page: Any) -> None:
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.wait_for_function(f"{PROMPTS}.some(e => e.textContent.includes('*'))")
    page.wait_for_function(f"!{PROMPTS}.some(e => e.textContent.includes('*'))", timeout=RUN_SECONDS * 1000)
    page.wait_for_selector(IDLE)


def save(page: Any) -> None:
    page.keyboard.press("Control+s")
    page.wait_for_selector(".jp-mod-dirty", state="detached")


def look_through(page: Any, lesson: LessonInfo) -> None:
    """Scroll from the top to the end: what has not been in sight is not painted. Leaves the pictures, if wanted."""
    page.set_viewport_size({"width": WIDTH, "height": TALL})
    page.evaluate(f"{PANEL}.scrollTo(0, 0)")
    for part in range(1, 100):
        page.wait_for_timeout(500)
        leave_picture(page, f"{lesson.stem}_{part}")
        if page.evaluate(f"{CELLS}.at(-1).getBoundingClientRect().bottom < innerHeight"):
            return
        page.evaluate(f"{PANEL}.scrollBy(0, {PANEL}.clientHeight)")
    pytest.fail("the lesson has no end")


def faults_in_file(notebook: nbformat.NotebookNode) -> list[str]:
    """What should not be in a lesson after all its cells have been run: errors, warnings, a cell left out."""
    faults = []
    for number, cell in enumerate(code_cells(notebook), start=1):
        if cell.execution_count != number:
            faults.append(f"{cell.id}: run as number {cell.execution_count}, not {number}")
        for output in cell.outputs:
            if output.output_type == "error":
                faults.append(f"{cell.id}: {output.ename}: {output.evalue}")
            elif output.get("name") == "stderr":
                faults.append(f"{cell.id}: on stderr: {output.text}")
    return faults


def summary_of(notebook: nbformat.NotebookNode) -> str:
    """The text under the summary cell."""
    cells = [cell for cell in code_cells(notebook) if role(cell) == "summary"]
    return "".join(output.get("text", "") for cell in cells for output in cell.outputs)


def pictures(page: Any) -> list[tuple[str, int]]:
    """Alternative text and true width of each picture in the lesson; a broken one has width 0."""
    images = "[...document.querySelectorAll('.jp-Notebook img')]"
    return page.evaluate(f"{images}.map(e => [e.alt || e.src.slice(0, 80), e.naturalWidth])")


@pytest.mark.parametrize("lesson", OPENED, ids=lambda lesson: lesson.stem)
def test_lesson_in_a_browser(lesson: LessonInfo, browser: Any, tmp_path: Path):
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks", ignore=shutil.ignore_patterns(".*"))
    copy_lessons(tmp_path)
    errors: list[str] = []
    copy = tmp_path / "my_course" / f"{lesson.stem}.ipynb"
    with jupyterlab(tmp_path) as address, opened_page(browser, lesson) as page:
        page.on("pageerror", lambda error: errors.append(str(error)))
        open_lesson(page, f"{address}/lab/tree/{copy.name}", len(read(copy).cells))
        run_all_cells(page)
        save(page)
        look_through(page, lesson)
        shown = pictures(page)
        assert page.query_selector(".jp-toastContainer, .Toastify__toast") is None, "JupyterLab asks something"
    stored = read(copy)
    assert faults_in_file(stored) == []
    assert f"Lesson {lesson.number:02d}: 0 of " in summary_of(stored)
    images = sum("image/png" in output.get("data", {}) for cell in code_cells(stored) for output in cell.outputs)
    assert len(shown) >= images > 0
    assert [name for name, width in shown if width == 0] == []
    assert errors == []
