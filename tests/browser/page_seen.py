"""A page in a browser: what a reader does to it and sees of it."""

import base64
import json
import time
from pathlib import Path
from typing import Any

from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

PATIENCE = 60.0  # seconds; cores may be shared


class PageSeen:
    """Opens a page of a file, at a width and in a colour scheme."""

    def __init__(self, driver: WebDriver, file: Path) -> None:
        self.driver, self.file = driver, file
        self.open()

    def open(self, *, width: int = 1280, scheme: str = "light", scripts: bool = True) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.tell("Emulation.setDeviceMetricsOverride", **size)
        self.tell("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.scheme(scheme)
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)  # what was logged of an earlier page
        self.driver.get(self.file.as_uri())

    def scheme(self, name: str) -> None:
        self.tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def tell(self, command: str, **parameters: Any) -> dict[str, Any]:
        return self.driver.execute_cdp_cmd(command, parameters)

    def run(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def until(self, script: str, *given: Any) -> Any:
        """What a script gives, as soon as it gives something."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            value = self.run(script, *given)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"It never came true: {script}")

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """The text of all such elements, whether in view or not."""
        return self.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector)

    def draw(self, holder: str) -> None:
        """Bring a chart into view and wait until it is drawn."""
        self.run(
            "document.documentElement.style.scrollBehavior = 'auto';"
            "document.querySelector(arguments[0]).parentElement.scrollIntoView()",  # itself it may be hidden yet
            holder,
        )
        self.until("return document.querySelector(arguments[0] + ' .area .main-svg') !== null", holder)

    def point(self, holder: str, at: tuple[float, float]) -> None:
        """Move the pointer to a place of a chart's drawn area, given as parts of its width and height."""
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", f"{holder} .area")
        box = self.run(
            "const box = document.querySelector(arguments[0] + ' .area .nsewdrag').getBoundingClientRect();"
            "return [box.x, box.y, box.width, box.height]",
            holder,
        )
        x, y = box[0] + at[0] * box[2], box[1] + at[1] * box[3]
        for step in (-3, 0):  # a pointer that moves is one that points
            self.tell("Input.dispatchMouseEvent", type="mouseMoved", x=x + step, y=y)

    def said(self, holder: str, start: str) -> str:
        """What the line under a chart says, once it begins so."""
        script = (
            "const e = document.querySelector(arguments[0]);"
            "return e.textContent.startsWith(arguments[1]) && e.textContent"
        )
        return self.until(script, f"{holder} .readout", start)

    def unfold(self, details: str) -> str:
        """Open the rows of a figure; the selector of their table."""
        self.run("document.querySelector(arguments[0]).open = true", details)
        self.until("return document.querySelector(arguments[0] + ' .count') !== null", details)
        return f"{details} table"

    def column(self, table: str, name: str) -> list[str]:
        """The cells of a column, as they stand."""
        return self.run(
            "const table = document.querySelector(arguments[0]);"
            "const at = [...table.tHead.rows[0].cells].findIndex((c) => c.textContent.trim() === arguments[1]);"
            "return [...table.tBodies[0].rows].map((r) => r.cells[at].textContent)",
            table,
            name,
        )

    def choose(self, field: str, value: str) -> None:
        """Set a native field as a reader does."""
        self.run(
            "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
            "field.dispatchEvent(new Event(field.tagName === 'SELECT' ? 'change' : 'input', {bubbles: true}))",
            field,
            value,
        )

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def saved(self, file: Path) -> str:
        """The text of a file that the page saves, once it is there."""
        end = time.monotonic() + PATIENCE
        while not file.exists() and time.monotonic() < end:
            time.sleep(0.05)
        return file.read_text(encoding="utf-8")

    def printed(self) -> bytes:
        return base64.b64decode(self.tell("Page.printToPDF", printBackground=True)["data"])

    def complaints(self) -> list[str]:
        """What the console shows as errors or warnings."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """All addresses that were asked for but the page's own and those inside it."""
        asked = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                asked.append(message["params"]["request"]["url"])
        assert self.file.as_uri() in asked  # else nothing was watched
        return [url for url in asked if url != self.file.as_uri() and not url.startswith(("data:", "blob:"))]
