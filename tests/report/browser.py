"""A headless Chromium, driven through its debugging pipe with Python's standard library alone."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page, whose console messages and requests are recorded."""

    def __init__(self, program):
        self.folder = tempfile.mkdtemp(prefix="kindling-browser-")
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def connect():  # the browser reads from 3 and writes to 4
            os.dup2(to_browser, 198)
            os.dup2(from_browser, 199)
            os.dup2(198, 3)
            os.dup2(199, 4)

        # The pages are the test's own, so a sandbox, which containers often lack, protects from nothing.
        self.process = subprocess.Popen(
            [program, "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--disable-background-networking", "--no-first-run", "--hide-scrollbars", "--user-data-dir=" + self.folder,
             "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=connect, close_fds=False, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.events, self.next_id, self.session = b"", [], 0, None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired, RuntimeError):
            self.process.kill()
            self.process.wait()
        os.close(self.read_end)
        os.close(self.write_end)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _message(self, timeout):
        while b"\0" not in self.buffer:
            if not select.select([self.read_end], [], [], timeout)[0]:
                return None
            block = os.read(self.read_end, 1 << 20)
            if not block:
                raise RuntimeError("the browser has ended")
            self.buffer += block
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            answer = self._message(deadline - time.monotonic())
            if answer is None:
                break
            if answer.get("id") == self.next_id:
                if "error" in answer:
                    raise RuntimeError(method + ": " + answer["error"]["message"])
                return answer["result"]
            self.events.append(answer)
        raise RuntimeError(method + ": no answer")

    def open(self, path, width, dark=False, height=900):
        """Opens a file and waits until it is loaded. Returns what the page has requested and written to the console."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events.clear()
        self.call("Page.navigate", url="file://" + str(path))
        deadline = time.monotonic() + 60
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            event = self._message(deadline - time.monotonic())
            if event is None:
                raise RuntimeError(f"{path} was not loaded")
            self.events.append(event)
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        requests = [event["params"]["request"]["url"] for event in self.events
                    if event["method"] == "Network.requestWillBeSent"]
        console = [event["params"] for event in self.events if event["method"] in
                   ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")]
        return requests, console

    def wait_for_load(self, timeout):
        """Returns whether the page loads again within so many seconds."""
        self.events.clear()
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            event = self._message(deadline - time.monotonic())
            if event is not None and event["method"] == "Page.loadEventFired":
                return True
        return False

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(expression + ": " + json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def mouse(self, kind, x, y, buttons=0):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, buttons=buttons,
                  button="left" if buttons or kind == "mouseReleased" else "none", clickCount=0 if kind == "mouseMoved" else 1)

    def screenshot(self, path, full=True):
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture["data"]))
