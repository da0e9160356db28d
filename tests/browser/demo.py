"""The demo, run and served by a real MLflow, and a browser to look at it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    StaleElementReferenceException,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
STUDY = "studies/toy.yaml"
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
WAIT_S = 90
"""Longest wait for something to appear on a page."""
_T = TypeVar("_T")


def command(folder: Path, *words: str) -> None:
    elsewhere = ("MLFLOW_TRACKING_URI", "RAY_ADDRESS")
    done = subprocess.run(
        [str(BIN / words[0]), *words[1:]],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in elsewhere},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"


def run_demo(folder: Path) -> Path:
    """The demo's study from nothing to a report on its study run, in a folder."""
    shutil.copytree(ROOT / "studies", folder / "studies")
    command(folder, "sweep", "run", STUDY)
    command(folder, "analysis", "report", STUDY, "--log", "--output", "demo")
    return folder


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """`mlflow ui` beside a folder's mlflow.db; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    words = [str(BIN / "mlflow"), "ui", "--port", str(port), "--workers", "1"]
    with (folder / "mlflow-ui.log").open("w") as log:
        server = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + WAIT_S
        while not _answers(address):
            assert server.poll() is None, (folder / "mlflow-ui.log").read_text()
            assert time.monotonic() < deadline, "mlflow ui does not answer"
            time.sleep(0.5)
        yield address
    finally:
        os.killpg(server.pid, 15)
        server.wait(timeout=30)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@dataclass(frozen=True, kw_only=True)
class Browser:
    """A headless Chromium, with the waiting that a page of scripts needs."""

    driver: WebDriver
    screenshots: Path

    def open(self, address: str) -> None:
        self.driver.get("about:blank")  # a change after the # alone would not load the page anew
        self.driver.get(address)

    def until(self, look: Callable[[], _T]) -> _T:
        """What `look` finds, once it finds something."""
        # The page draws itself anew while it loads.
        ignored = (
            StaleElementReferenceException,
            ElementClickInterceptedException,
            ElementNotInteractableException,
        )
        waiting = WebDriverWait(self.driver, WAIT_S, ignored_exceptions=ignored)
        return waiting.until(lambda _: look())  # type: ignore[arg-type,return-value]

    def text(self) -> str:
        return self.driver.find_element(By.TAG_NAME, "body").text

    def says(self, *texts: str) -> None:
        """Wait until the page shows all of these."""
        for text in texts:
            self.until(lambda text=text: text in self.text())  # type: ignore[misc]

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str, text: str = "") -> WebElement:
        """The first element that is there and holds a text."""
        return self.until(lambda: next((found for found in self.all(selector) if text in found.text), None))  # type: ignore[return-value]

    def close_assistant(self) -> None:
        """MLflow's assistant covers a third of a page opened for the first time."""
        self.one("button[aria-label='Close']").click()
        self.until(lambda: "MLflow Assistant" not in self.text())

    def screenshot(self, name: str, *, width: int = 1400, height: int = 850) -> None:
        self.driver.set_window_size(width, height)
        self.driver.save_screenshot(str(self.screenshots / f"{name}.png"))


@contextmanager
def browser(profile: Path, screenshots: Path) -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--user-data-dir={profile}", "--window-size=1400,900"):
        options.add_argument(flag)
    service: Any = webdriver.ChromeService(str(shutil.which("chromedriver")))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(driver=driver, screenshots=screenshots)
    finally:
        driver.quit()
