"""A headless Chromium, which a program controls by the DevTools protocol.

`window.py` uses this module. Chromium reads messages from descriptor 3 and writes messages to descriptor 4. Each
message is a JSON object that ends with a zero byte, so neither a port nor a library for WebSockets is needed.
"""

import base64
import fcntl
import json
import os
import select
import subprocess
import sys
import time

ANSWER_MAX = 60  # Seconds until the browser must answer.

# Options of a browser that shows one page of this host, as root, and contacts no other host.
OPTIONS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--no-proxy-server",
]

# Gives a program two descriptors as 3 and 4.
LAUNCHER = """
import os, sys
for own, wanted in zip(sys.argv[1:3], (3, 4)):
    os.dup2(int(own), wanted)
os.execvp(sys.argv[3], sys.argv[3:])
"""

# Keys by name: the code, the number of Windows, and the text that a field gets.
KEYS = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Space": (" ", 32, " "),
    "ArrowDown": ("ArrowDown", 40, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
}
SHIFT = 8  # The bit of the shift key in `modifiers`.


class Broken(Exception):
    """A failed check."""


def high(descriptor):
    """Moves a descriptor above those of the browser."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(descriptor)
    return moved


class Browser:
    """A running Chromium with one page."""

    def __init__(self, folder, program="chromium"):
        self.log = os.path.join(folder, "chromium.log")
        requests, self.out = map(high, os.pipe())
        self.back, answers = map(high, os.pipe())
        command = [sys.executable, "-c", LAUNCHER, str(requests), str(answers), program, *OPTIONS]
        command += [f"--user-data-dir={folder}/profile", "about:blank"]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(requests, answers)
            )
        for descriptor in (requests, answers):
            os.close(descriptor)
        self.number, self.text = 0, b""
        self.session = None
        self.errors = []  # Messages of the console and exceptions since the last look.
        self.files = {}  # Files of the page that replace those of the daemon.
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            self.call(f"{domain}.enable")

    def messages(self, seconds):
        """Returns the messages that have arrived, after at most this time."""
        if not select.select([self.back], [], [], seconds)[0]:
            return []
        data = os.read(self.back, 1 << 20)
        if not data:
            with open(self.log) as log:
                raise Broken(f"the browser has ended: {log.read()[-2000:]}")
        *whole, self.text = (self.text + data).split(b"\0")
        return [json.loads(message) for message in whole]

    def post(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data) :]
        return self.number

    def call(self, method, **parameters):
        number, end = self.post(method, **parameters), time.monotonic() + ANSWER_MAX
        while time.monotonic() < end:
            answer = None
            for message in self.messages(1):
                if message.get("id") == number:
                    answer = message
                elif "method" in message:
                    self.take(message["method"], message["params"])
            if answer and "error" in answer:
                raise Broken(f"{method}: {answer['error']['message']}")
            if answer:
                return answer["result"]
        raise Broken(f"{method}: no answer of the browser within {ANSWER_MAX} s")

    def take(self, method, event):
        """Notes errors, and answers requests for files that are replaced."""
        if method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(own.get("value", own.get("description"))) for own in event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{event['entry']['text']} {event['entry'].get('url', '')}")
        elif method == "Fetch.requestPaused":
            path = "/" + event["request"]["url"].split("/", 3)[3]
            if path not in self.files:
                self.post("Fetch.continueRequest", requestId=event["requestId"])
                return
            headers, body = self.files[path]
            headers = [{"name": name, "value": value} for name, value in headers.items()]
            body = base64.b64encode(body).decode()
            self.post(
                "Fetch.fulfillRequest", requestId=event["requestId"], responseCode=200, responseHeaders=headers, body=body
            )

    def replace_files(self, files):
        """Loads these files, by path, in place of those of the server."""
        self.files = files
        self.call("Fetch.enable", patterns=[{"urlPattern": f"*{path}"} for path in files])

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name):
        """Prefers a colour scheme: `light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def load(self, url):
        done = self.call("Page.navigate", url=url)
        if "errorText" in done:
            raise Broken(f"{url}: {done['errorText']}")
        self.wait("document.readyState === 'complete'", f"{url} is loaded")

    def value(self, expression):
        """Returns the value of an expression in the page."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            details = done["exceptionDetails"]
            raise Broken(f"{expression[:80]}: {details.get('exception', {}).get('description', details['text'])}")
        return done["result"].get("value")

    def wait(self, expression, what, seconds=30):
        """Waits until an expression is true, and returns its value."""
        end = time.monotonic() + seconds
        while not (value := self.value(expression)):
            if time.monotonic() > end:
                raise Broken(f"not within {seconds} s: {what}")
            time.sleep(0.1)
        return value

    def press(self, name, modifiers=0):
        key, number, text = KEYS[name]
        event = {"key": key, "code": name, "windowsVirtualKeyCode": number, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def nodes(self):
        """Returns the nodes of the accessibility tree that are not ignored."""
        return [node for node in self.call("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]

    def picture(self, path, height):
        """Writes the upper part of the page as PNG."""
        width = self.value("innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        done = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(done["data"]))

    def take_errors(self):
        """Returns the errors since the last call."""
        self.value("0")
        errors, self.errors = self.errors, []
        return errors

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.back)
