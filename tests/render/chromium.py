"""Drive Debian's Chromium, headless, over its own protocol.

The protocol speaks JSON over two pipes (``--remote-debugging-pipe``): no port, no driver program, and no package that
the project does not have. Selenium and Playwright would add one, or two, and a version of either to keep in step with
the browser's, for what takes the hundred lines below.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium")

_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # containers seldom allow the namespaces that the sandbox is made of; the pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    """A browser without a window; a context manager that ends the processes that it started, and no others."""

    def __init__(self, profile: Path) -> None:
        # The browser reads commands from descriptor 3 and writes to 4, so a shell puts our pipes there: bash,
        # since others know descriptors of one digit only.
        their_input, self._commands = os.pipe()
        self._answers, their_output = os.pipe()
        script = f'exec "$0" "$@" 3<&{their_input} 4>&{their_output}'
        command = ["bash", "-c", script, str(CHROMIUM), *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(their_input, their_output),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(profile)},
        )
        os.close(their_input)
        os.close(their_output)
        self._unread = b""
        self._events: list[dict[str, Any]] = []
        self._number = 0

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.send("Browser.close")
            self._process.wait(10)
        except (OSError, EOFError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._commands)
            os.close(self._answers)

    def send(self, method: str, session: str | None = None, /, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that arrive meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])
            self._events.append(answer)

    def events(self, session: str) -> list[dict[str, Any]]:
        """Return the events of a page that have come since the last call for it."""
        self.send("Browser.getVersion")
        found = [event for event in self._events if event.get("sessionId") == session]
        self._events = [event for event in self._events if event.get("sessionId") != session]
        return found

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            read = os.read(self._answers, 1 << 20)
            if not read:
                raise EOFError("the browser has ended")
            self._unread += read
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))


class Page:
    """One page of the browser, with a record of its console messages and its requests."""

    def __init__(self, browser: Browser, *, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        self._browser = browser
        context = browser.send("Target.createBrowserContext")["browserContextId"]
        target = browser.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        self._target = target
        self._session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}  # a click must not miss what is still moving
        self.send("Emulation.setEmulatedMedia", features=[scheme, still])
        self._events: list[dict[str, Any]] = []

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command to this page."""
        return self._browser.send(method, self._session, **parameters)

    def close(self) -> None:
        """Close the window."""
        self._browser.send("Target.closeTarget", targetId=self._target)

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window, in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def open(self, path: Path, address: str = "") -> None:
        """Open a file, at a place in it, and wait until its script says that it is ready."""
        self.send("Page.navigate", url=path.as_uri() + address)
        for _ in range(600):
            # While the page loads there may be no document yet.
            if self.run("document.documentElement?.dataset.ready ?? ''"):
                return
            time.sleep(0.05)
        raise TimeoutError(f"{path} did not become ready; its messages: {self.complaints()}")

    def run(self, script: str) -> Any:
        """Evaluate an expression and return its value, awaiting promises."""
        found = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", str(found)))
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        codes = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "End": 35, "Home": 36, "Tab": 9}
        extra = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        code = codes.get(key, ord(key.upper()[0]))
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": key, "windowsVirtualKeyCode": code, **(extra if kind == "keyDown" else {})}
            self.send("Input.dispatchKeyEvent", **event)

    def click(self, selector: str) -> None:
        """Click where an element is, as a mouse does."""
        self.run(
            f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center', behavior: 'instant'}})"
        )
        box = self.run(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.send("Input.insertText", text=text)

    def settle(self) -> None:
        """Wait until the page has reacted to an input."""
        self.run("new Promise((done) => setTimeout(() => requestAnimationFrame(() => done(true)), 90))")

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as PNG."""
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def events(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of all events of a kind, since the page was made."""
        self._events += self._browser.events(self._session)
        return [event["params"] for event in self._events if event["method"] == method]

    def complaints(self) -> list[str]:
        """Return what the console, the log and uncaught errors say."""
        said = [str(event["args"]) for event in self.events("Runtime.consoleAPICalled")]
        logged = [event["entry"]["text"] for event in self.events("Log.entryAdded")]
        thrown = [event["exceptionDetails"]["text"] for event in self.events("Runtime.exceptionThrown")]
        return said + logged + thrown

    def requests(self) -> list[str]:
        """Return every address that was requested."""
        return [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]
