"""The progress bar: seen only where somebody reads, and gone afterwards."""

import pytest

from course_utils import progress


def test_the_bar_shows_only_where_somebody_reads(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    assert not progress.is_welcome()
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    monkeypatch.delenv("COURSE_STRICT", raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert progress.is_welcome()
    monkeypatch.setenv("COURSE_STRICT", "1")
    assert not progress.is_welcome()
    assert list(progress.bar(range(3), desc="training")) == [0, 1, 2]
    assert capfd.readouterr() == ("", "")


def test_nothing_of_the_bar_stays(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(progress, "is_welcome", lambda: True)
    list(progress.bar(range(3), desc="training", unit="step"))
    out, err = capfd.readouterr()
    assert out == "" and "training" in err
    assert err.rstrip(" ").endswith("\r") and err.rstrip("\r ").rfind("\n") == -1
