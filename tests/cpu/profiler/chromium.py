"""A headless Chromium, driven by the DevTools protocol through its pipe: no port, no package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PROGRAM = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe")
# The browser reads from 3 and writes to 4; the two are first put out of each other's way.
PLACE = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page.  ``complaints``: exceptions, and what was written to the console as an error."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self.reader = reader
        self.writer = writer
        self.number = 0
        self.session = ""
        self.complaints: list[str] = []
        self.events: list[str] = []

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come meanwhile are kept."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.writer.write(json.dumps(message).encode() + b"\0")
        self.writer.flush()
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def receive(self) -> dict[str, Any]:
        """The next message."""
        data = bytearray()
        while (byte := self.reader.read(1)) != b"\0":
            if not byte:
                raise EOFError("the browser has gone")
            data += byte
        answer: dict[str, Any] = json.loads(data)
        self.note(answer.get("method", ""), answer.get("params", {}))
        return answer

    def note(self, event: str, facts: dict[str, Any]) -> None:
        """Keep an event."""
        self.events.append(event)
        if event == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(facts["exceptionDetails"]))
        elif (event == "Runtime.consoleAPICalled" and facts["type"] in ("error", "assert")) or (
                event == "Log.entryAdded" and facts["entry"]["level"] == "error"):
            self.complaints.append(json.dumps(facts))

    def attach(self) -> None:
        """Talk to the page that is there."""
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(each for each in targets if each["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=page["targetId"],
                                flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def open(self, path: Path) -> None:
        """Load a file, and return when it is loaded."""
        self.events.clear()
        self.ask("Page.navigate", url=path.as_uri())
        while "Page.loadEventFired" not in self.events:
            self.receive()

    def value(self, expression: str) -> Any:
        """What an expression is in the page; promises are waited for."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True,
                         awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def painted(self) -> None:
        """Return when what was asked for is drawn."""
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def key(self, key: str, text: str = "") -> None:
        """Press and let go of a key."""
        names = {"key": key, "code": key} | ({"text": text} if text else {})
        self.ask("Input.dispatchKeyEvent", type="keyDown", **names,
                 windowsVirtualKeyCode=CODES.get(key, ord(text.upper() or "0")))
        self.ask("Input.dispatchKeyEvent", type="keyUp", **names)

    def wheel(self, x: float, y: float, by: float) -> None:
        """Turn the wheel at a place."""
        self.ask("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=by)

    def click(self, x: float, y: float) -> None:
        """Press and let go of the left button."""
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def size(self, width: int, height: int) -> None:
        """Give the page's window a size."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=False)

    def scheme(self, name: str) -> None:
        """Prefer light or dark."""
        self.ask("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": name}])

    def shot(self, path: Path, whole: bool = True) -> None:
        """Write a picture of the whole page, or of what the window shows."""
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))


CODES = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13,
         "Escape": 27, "Home": 36, "Tab": 9}


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own in a folder."""
    to_browser, from_browser = os.pipe(), os.pipe()
    ends = (to_browser[0], from_browser[1])
    running = subprocess.Popen(
        [sys.executable, "-c", PLACE, *map(str, ends), str(PROGRAM), *FLAGS,
         f"--user-data-dir={folder}", "about:blank"], pass_fds=ends,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(to_browser[0])
    os.close(from_browser[1])
    with os.fdopen(to_browser[1], "wb") as writer, os.fdopen(from_browser[0], "rb") as reader:
        try:
            made = Browser(reader, writer)
            made.attach()
            yield made
        finally:
            running.terminate()
            running.wait()
