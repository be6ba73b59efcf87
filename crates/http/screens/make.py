"""Makes the README's pictures: a daemon with a shop's jobs, looked at with Chromium.

    target/clients/python/bin/python crates/http/screens/make.py target/debug/windlass

`tests/install-clients` installs what it needs. The daemon keeps everything in memory and ends with this program.
"""

import json
import random
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from selenium import webdriver

HERE = Path(__file__).parent
PICTURES = [("/", "overview.png", "light"), ("/dead", "dead-letters.png", "dark"), ("/kinds", "kinds.png", "light")]
FLOW_S = 50
ERRORS = [
    ("Stripe::CardError", lambda n: f"card {4000 + n} of 'Customer {n}' was declined"),
    ("Net::ReadTimeout", lambda n: f"no answer from 10.0.0.{n % 250}:443 after {3000 + n} ms"),
    ("KeyError", lambda n: '"user_id"'),
    ("ActiveRecord::RecordNotFound", lambda n: f"Couldn't find Order with 'id'={n}"),
]


class Faktory:
    """A connection that speaks FWP."""

    def __init__(self, address, wid=None):
        self.lines = socket.create_connection(address).makefile("rwb")
        self.lines.readline()
        worker = {} if wid is None else {"hostname": "host", "wid": wid, "pid": 1, "labels": ["ruby"]}
        self.ask("HELLO", {"v": 2, **worker})

    def ask(self, verb, value):
        self.lines.write(f"{verb} {value if isinstance(value, str) else json.dumps(value)}\r\n".encode())
        self.lines.flush()
        answer = self.lines.readline()
        if not answer.startswith(b"$") or answer.startswith(b"$-"):
            return None
        body = self.lines.read(int(answer[1:]) + 2).strip()
        return json.loads(body) if body else None

    def push(self, number, queue, kind, arguments, **terms):
        self.ask("PUSH", {"jid": f"{kind.lower()}-{number:06}", "queue": queue, "jobtype": kind, "args": arguments, **terms})


def fill(http, faktory):
    producer, failing = Faktory(faktory), Faktory(faktory, "billing-1")
    for number in range(140):
        producer.push(number, "billing", "ChargeCard", [number, "EUR"], retry=-1)
    for number in range(140):
        jid = failing.ask("FETCH", "billing")["jid"]
        kind, message = ERRORS[number % 7 % 4]
        failing.ask("FAIL", {"jid": jid, "errtype": kind, "message": message(number), "backtrace": ["app/jobs/charge.rb:12"]})
    for number in range(1233):
        producer.push(number, "video", "Transcode", [f"clip-{number}.mov", "1080p"])
    for number in range(60):
        due = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600 * (number + 1)))
        producer.push(number, "reports", "Report", [number], at=due)
    busy = [Faktory(faktory, f"video-{number}") for number in range(5)]
    for worker in busy:
        worker.ask("FETCH", "video")
    for number in range(30):
        url = f"{http}/api/v1/queues/resize/jobs"
        urllib.request.urlopen(urllib.request.Request(url, data=b'{"image": "cat.png"}', method="POST")).read()
    return producer, busy


def flow(http, faktory, producer):
    """Jobs come and go for a while, so that the plots have something to show."""
    worker, number, end = Faktory(faktory, "mails-1"), 0, time.monotonic() + FLOW_S
    while time.monotonic() < end:
        for _ in range(random.randint(10, 60)):
            producer.push(number, "mails", "WelcomeMail", [f"user{number}@example.com"])
            number += 1
            if number % 3 == 0:
                url = f"{http}/api/v1/queues/webhooks/jobs"
                urllib.request.urlopen(urllib.request.Request(url, data=b"{}", method="POST")).read()
                taken = urllib.request.urlopen(urllib.request.Request(f"{http}/api/v1/queues/webhooks/take", method="POST"))
                lease = json.load(taken)["lease"]
                urllib.request.urlopen(urllib.request.Request(f"{http}/api/v1/leases/{lease}/done", data=b"", method="POST")).read()
        while (job := worker.ask("FETCH", "mails")) is not None:
            time.sleep(random.expovariate(400))
            worker.ask("ACK", {"jid": job["jid"]})
    return worker


def look(http):
    for path, name, theme in PICTURES:
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for argument in ["headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"]:
            options.add_argument(f"--{argument}")
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})
        size = {"width": 1280, "height": 860, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(http + path)
        browser.save_screenshot(str(HERE / name))
        browser.quit()


if __name__ == "__main__":
    random.seed(1)
    daemon = subprocess.Popen([sys.argv[1], "serve", "--ephemeral", "--log-level", "error"], stdout=subprocess.PIPE)
    try:
        addresses = json.loads(daemon.stdout.readline())
        host, port = addresses["faktory"].split(":")
        http = f"http://{addresses['http']}"
        producer, busy = fill(http, (host, int(port)))
        worker = flow(http, (host, int(port)), producer)
        look(http)
    finally:
        daemon.kill()
