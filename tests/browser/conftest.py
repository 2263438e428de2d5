"""A headless Chromium, and the pages that it opens: of a real run, and of one whose tokens are hostile."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

import geomprobe
from geomprobe.pages.page import write_page
from geomprobe.run.reading import Run
from tests.browser.page_seen import PageSeen
from tests.synthetic_run import write_synthetic_run


def found(name: str) -> str:
    """A program's path; without it tests are skipped, but fail where CI has to have it."""
    path = shutil.which(name)
    if path is None:
        message = f"The browser's tests need {name}; on Debian apt-get install chromium chromium-driver brings it."
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return path


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Chromium without a window; what it logs and asks the network for is kept."""
    options = Options()
    options.binary_location = found("chromium")
    profile = tmp_path_factory.mktemp("profile")
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", f"user-data-dir={profile}"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(found("chromedriver")))
    started.set_script_timeout(120)
    yield started
    started.quit()


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """An analysis of the packaged model, with its page."""
    return geomprobe.analyze("plain", windows=4, out=tmp_path_factory.mktemp("real") / "run", quiet=True)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A made-up run with all tables, whose tokens and words are markup, turn text around or have no shape."""
    run = write_synthetic_run(tmp_path_factory.mktemp("hostile"), qk_norm=True)
    write_page(run)
    return run


@pytest.fixture
def opened(driver: webdriver.Chrome, real: Run) -> PageSeen:
    """The real run's page, opened anew."""
    return PageSeen(driver, real.path / "report.html")


@pytest.fixture
def opened_hostile(driver: webdriver.Chrome, hostile: Run) -> PageSeen:
    """The hostile run's page, opened anew."""
    return PageSeen(driver, Path(hostile.path) / "report.html")
