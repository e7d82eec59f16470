"""A real Chromium that tests drive through its debugging pipe: open a page, run a script in it, look at it, hear its console."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

PATIENCE_SECONDS = 60.0
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage", "--hide-scrollbars")


@dataclass(slots=True)
class Browser:
    """One tab. ``console`` holds what the page, the network and the content policy complained about, or the page printed."""

    to: IO[bytes]
    back: IO[bytes]
    session: str = ""
    console: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Every address that was asked for."""
    loads: int = 0
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol and its result."""
        number = next(self._numbers)
        body: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self.session:
            body["sessionId"] = self.session
        self.to.write(json.dumps(body).encode() + b"\0")
        self.to.flush()
        while True:
            message = self._read()
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])
            self._note(message)

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False, scripts: bool = True) -> None:
        """Go there and wait until it is loaded."""
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = "dark" if dark else "light"
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.command("Emulation.setScriptExecutionDisabled", value=not scripts)
        before = self.loads
        self.command("Page.navigate", url=url)
        self.until(lambda: self.loads > before, f"the load of {url}")

    def run(self, script: str) -> Any:
        """What the expression evaluates to, also when it is a promise."""
        result = self.command("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, question: Callable[[], object], what: str) -> None:
        """Ask until the answer is true."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not question():
            assert time.monotonic() < end, f"never came: {what}; console: {self.console}"
            if self.session:
                self.command("Runtime.evaluate", expression="0")  # brings what the page has told meanwhile
            time.sleep(0.05)

    def picture(self, most: int | None = None) -> bytes:
        """The page as PNG: the whole of it however long, or so many pixels from its top."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], most or size["height"]), "scale": 1}
        return base64.b64decode(self.command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"])

    def _read(self) -> dict[str, Any]:
        body = bytearray()
        while (byte := self.back.read(1)) != b"\0":
            assert byte, "the browser is gone"
            body += byte
        return dict(json.loads(body))

    def _note(self, message: dict[str, Any]) -> None:
        method, told = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self.loads += 1
        elif method == "Network.requestWillBeSent":
            self.asked.append(told["request"]["url"])
        elif method == "Log.entryAdded":
            self.console.append(told["entry"]["text"])
        elif method in {"Runtime.consoleAPICalled", "Runtime.exceptionThrown"}:
            self.console.append(json.dumps(told))


@contextlib.contextmanager
def browser(home: Path) -> Iterator[Browser]:
    """A started browser; all that it leaves stays below ``home``."""
    # It opens a socket below TMPDIR, whose path must be short.
    with tempfile.TemporaryDirectory() as short, _started(home, short) as tab:
        yield tab


@contextlib.contextmanager
def _started(home: Path, short: str) -> Iterator[Browser]:
    ours, theirs = os.pipe(), os.pipe()
    places = {name: str(home) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")} | {"TMPDIR": short}
    flags = [*_FLAGS, f"--user-data-dir={home / 'profile'}", "--remote-debugging-pipe", "about:blank"]
    process = subprocess.Popen(
        # The browser reads commands from file 3 and answers on file 4.
        ["bash", "-c", f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}', "chromium", "chromium", *flags],
        pass_fds=(ours[0], theirs[1]),
        env={**os.environ, **places},
        stderr=subprocess.DEVNULL,
    )
    os.close(ours[0])
    os.close(theirs[1])
    with os.fdopen(ours[1], "wb") as to, os.fdopen(theirs[0], "rb") as back:
        tab = Browser(to, back)
        try:
            tab.until(lambda: _page_of(tab), "a tab")
            tab.session = tab.command("Target.attachToTarget", targetId=_page_of(tab), flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                tab.command(f"{domain}.enable")
            yield tab
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def _page_of(tab: Browser) -> str:
    targets = tab.command("Target.getTargets")["targetInfos"]
    return next((str(one["targetId"]) for one in targets if one["type"] == "page"), "")
