"""A person with a browser: Chromium, driven over its own protocol. `pages_peer.py SCENE ADDRESS`."""

import html
import json
import re
import socket
import sys
import urllib.parse
import urllib.request

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

PATIENCE_S = 60
# The pages of the navigation, with their headings.
PAGES = {
    "/queues": "Queues",
    "/jobs": "Jobs",
    "/dead": "Dead letters",
    "/kinds": "Kinds",
    "/history": "History",
    "/workers": "Workers",
    "/schedules": "Schedules",
    "/batches": "Batches",
    "/throttles": "Throttles",
    "/connections": "Connections",
    "/cluster": "Cluster",
    "/": "Overview",
}
WIDTHS = [390, 1024, 1920]
# A queue's name and a body that a careless page would run.
EVIL = "<img src=x onerror=document.title='run'>\"'&/"


class Person:
    def __init__(self, address):
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for argument in ["headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1200,900"]:
            options.add_argument(f"--{argument}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.browser = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
        self.address = address

    def go(self, path):
        self.browser.get(self.address + path)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector="main"):
        return self.one(selector).text

    def wait(self, what, condition):
        # What is looked at may be replaced meanwhile.
        def holds(_):
            try:
                return condition()
            except Exception:
                return False

        try:
            WebDriverWait(self.browser, PATIENCE_S, 0.05).until(holds)
        except TimeoutException:
            raise AssertionError(f"{what}: {self.browser.current_url}\n{self.text('body')}") from None

    def click(self, text, within="body"):
        def click():
            [button] = [it for it in self.all(f"{within} button, {within} a") if it.text == text and it.is_displayed()]
            return button.click() is None

        self.wait(f"a button {text}", click)

    def press(self, selector, index=0):
        # As a person who scrolls: what is at the end of a page may be below the bar.
        def press():
            part = self.all(selector)[index]
            self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", part)
            return part.click() is None

        self.wait(selector, press)

    def confirm(self):
        self.wait("a question", lambda: self.one("dialog").is_displayed())
        question = self.text("#question")
        self.press("#answer")
        return question

    def emulate(self, command, **terms):
        self.browser.execute_cdp_cmd(command, terms)

    def type(self, *keys):
        for key in keys:
            ActionChains(self.browser).send_keys(key).perform()

    def job(self, state):
        with urllib.request.urlopen(f"{self.address}/api/v1/jobs?state={state}&limit=1") as answer:
            return json.load(answer)["jobs"][0]["id"]

    def complaints(self):
        # A page that is not found is one of the scenes.
        return [it["message"] for it in self.browser.get_log("browser") if "404" not in it["message"]]


def push(address, queue, body, terms=""):
    path = f"{address}/api/v1/queues/{urllib.parse.quote(queue, safe='')}/jobs?{terms}"
    urllib.request.urlopen(urllib.request.Request(path, data=body.encode(), method="POST")).read()


def take(address, queue, worker):
    path = f"{address}/api/v1/queues/{queue}/take?worker={worker}"
    return json.load(urllib.request.urlopen(urllib.request.Request(path, method="POST")))["lease"]


def tour(person):
    """Through all pages; a queue is paused and its jobs are filtered; names and bodies are shown, not run."""
    push(person.address, EVIL, '{"a":12345678901234567890,"b":"' + EVIL.replace('"', '\\"') + '"}')
    push(person.address, "mails", "needle in a body")
    push(person.address, "mails", "another")
    person.go("/")
    for path, heading in PAGES.items():
        person.press(f"nav a[href='{path}']")
        person.wait(heading, lambda: person.text("h1").startswith(heading) and person.text("nav [aria-current]").startswith(heading))

    person.go("/queues")
    person.click("Ready", "thead")
    person.wait("the most ready jobs first", lambda: person.text("tbody th a") == "mails")
    person.press("[data-send='POST /queues/mails/pause']")
    person.wait("a paused queue", lambda: "mails paused" in person.text("table"))
    person.go("/queues/mails")
    person.click("Resume")
    person.wait("a queue that is not paused", lambda: person.text("h1") == "mails")

    person.go("/jobs")
    person.press("details.fold summary")
    person.one("[name=text]").send_keys("needle")
    Select(person.one("[name=state]")).select_by_visible_text("ready")
    person.click("Filter")
    person.wait("one job", lambda: len(person.all("tbody tr")) == 1 and "needle" in person.browser.current_url)
    person.press("tbody th a")
    person.wait("a reason", lambda: "no worker serves mails" in person.text(".why"))
    assert person.text("details[open] pre") == "needle in a body"

    person.go("/jobs?queue=mails")
    newest = person.text("tbody th a")
    person.click("oldest first")
    person.wait("the other order", lambda: person.text(".choice strong") == "oldest first" and int(person.text("tbody th a")) < int(newest))

    person.go("/queues/" + urllib.parse.quote(EVIL, safe=""))
    assert person.text("h1") == EVIL
    person.press("tbody th a")
    person.wait("a number that is not rewritten", lambda: "12345678901234567890" in person.text(".tree"))
    assert EVIL.replace('"', '\\"') in person.text(".tree")
    person.press(".tree summary")
    assert "12345678901234567890" not in person.text(".tree"), "a fold is closed"
    person.click("Delete")
    assert "lost" in person.confirm()
    person.wait("a job that is gone", lambda: "404" in person.text("h1"))
    for path in ["/", "/queues", "/jobs"]:
        person.go(path)
        assert person.all("main img") == [] and person.browser.title != "run", path

    person.go("/throttles")
    person.one("[name=queue]").send_keys("mails")
    person.one("[name=concurrency]").send_keys("1")
    person.click("Set throttle")
    person.wait("a throttle", lambda: "mails" in person.text("table"))
    take(person.address, "mails", "w7")
    person.wait("a worker that holds a slot", lambda: "w7" in person.text("table"))
    person.click("Remove", "table")
    person.confirm()
    person.wait("no throttle", lambda: "No queue has a throttle." in person.text())

    person.go("/queues")
    person.press("details.fold summary")
    person.one("[name=queue]").send_keys("soon")
    person.one("[name=jobs]").send_keys("7")
    person.click("Limit")
    person.wait("a new queue", lambda: "soon is new" in person.text("#message") and "soon" in person.text("table"))
    person.go("/queues/soon")
    assert "With 7 jobs it takes no more" in person.text("main")
    person.click("Settings")
    person.click("Remove")
    assert "soon" in person.confirm()
    # Its page leads to the list, as Faktory's does.
    person.wait("a queue that is gone", lambda: person.browser.current_url.endswith("/queues"))
    assert "soon" not in person.text("table")

    person.go("/?span=month")
    assert len(person.all("polyline")) == 4 and person.text(".choice strong") == "30 days"
    person.go("/")
    jobs = lambda: int(person.text(".tiles b"))
    before = jobs()
    push(person.address, "mails", "while the page is open")
    person.wait("a page that stays current", lambda: jobs() == before + 1)
    assert person.complaints() == [], person.complaints()


def settings(person):
    """Each button of a queue's page, and of the keys of its policy."""
    order = lambda customer: json.dumps({"customer": customer})
    for customer in ["acme", "acme", "zeta"]:
        push(person.address, "orders", order(customer))
    push(person.address, "orders", "without a key")
    # A field for each rule, empty at first.
    person.go("/queues/orders/settings")
    person.press("[name=key] option[value=args]")
    person.one("[name=place]").send_keys("/customer")
    person.one("[name='per_key.running']").send_keys("1")
    person.one("[name=weights]").send_keys("acme = 2")
    person.click("Set policy")
    person.wait("a refusal", lambda: "weights require fair" in person.text("#message"))
    assert person.one("[name=place]").get_attribute("value") == "/customer", "what is typed stays"
    [complaint] = person.complaints()
    assert "400" in complaint, complaint
    person.press("[name=fair]")
    person.click("Set policy")
    person.wait("its author", lambda: "The policy is set by " in person.text())
    person.go("/queues/orders/settings")
    field = lambda name: person.one(f"[name='{name}']").get_attribute("value")
    assert [field("key"), field("place"), field("per_key.running"), field("weights").strip()] == ["args", "/customer", "1", "acme = 2"]
    assert person.one("[name=fair]").is_selected() and not person.one("[name=ordered]").is_selected()
    person.go("/queues/orders")

    def row(name):
        return next(it for it in person.all("tr[data-row]") if it.text.startswith(name))

    def press(name, button):
        person.wait(f"{button} of {name}", lambda: row(name).find_element(By.XPATH, f".//button[.='{button}']").click() is None)

    person.wait("two of a key", lambda: "2" in row("acme").text)
    assert "1 of a key at once" in person.text(), person.text()
    person.go("/queues/orders")
    press("acme", "Pause")
    person.wait("a paused key", lambda: "paused" in row("acme").text)
    person.press(".of-keys tr[data-row] td a")
    person.wait("the jobs of the key", lambda: len(person.all("[data-id]")) == 2)
    person.press("tbody th a")
    person.wait("a reason", lambda: "the key acme is paused in orders" in person.text(".why"))
    person.go("/queues/orders")
    press("acme", "Resume")
    person.wait("a key that goes on", lambda: "paused" not in row("acme").text)

    # Only the dead jobs of one key are tried again.
    push(person.address, "orders", order("fails"), "retries=-1&priority=9")
    lease = take(person.address, "orders", "w1")
    path = f"{person.address}/api/v1/leases/{lease}/fail"
    urllib.request.urlopen(urllib.request.Request(path, data=b"broken", method="POST")).read()
    push(person.address, "orders", order("fails"))
    person.go("/queues/orders")
    press("zeta", "Retry dead")
    person.wait("a refusal", lambda: person.text("#message") == "Retry: no job is in a state that allows this.")
    press("fails", "Retry dead")
    assert person.confirm() == "Retry 1 job?"
    person.wait("no dead job", lambda: person.text("#message") == "Retry: 1 job." and "2" in row("fails").text)

    # Jobs without a key are a key of their own.
    person.go("/queues/orders")
    press("without a key", "Clear")
    assert "lost" in person.confirm()
    person.wait("their end", lambda: person.text("#message") == "1 job." and "without a key" not in person.text(".of-keys"))

    for fields, button, shown in [
        ({"concurrency": "1", "per_worker": "1"}, "Set throttle", "Its throttle: 0 slots held of 1, 1 per worker."),
        ({}, "Remove throttle", None),
        ({"jobs": "1"}, "Set limit", "With 1 job it takes no more."),
        ({}, "Remove limit", None),
        ({}, "As configured", None),
    ]:
        person.go("/queues/orders/settings")
        for name, text in fields.items():
            person.one(f"[name={name}]").send_keys(text)
        person.click(button)
        person.wait(button, lambda: person.text("#message") == "Done.")
        assert all(field(name) == text for name, text in fields.items()), "the form is filled"
        person.go("/queues/orders")
        words = ["Its throttle", "it takes no more", "Keys with"][["throttle", "limit", "configured"].index(button.split()[-1])]
        person.wait(button, lambda: (words in person.text()) == (shown is not None) and (shown or "") in person.text())
    person.go("/queues/orders/settings")
    person.click("Clear")
    assert person.confirm() == "Remove all ready jobs of orders? They are lost."
    person.wait("no ready job", lambda: person.text("#message") == "5 jobs.")
    assert person.complaints() == [], person.complaints()


def sorts(person):
    """Each heading of a list sorts it, and a second time the other way round."""
    fill(person.address)
    workers = []
    for name in ["ann", "bob"]:
        peer = socket.create_connection(("127.0.0.1", int(FAKTORY)))
        peer.recv(100)
        peer.sendall(b"HELLO " + json.dumps({"v": 2, "hostname": name, "wid": name, "pid": 1, "labels": []}).encode() + b"\r\n")
        assert peer.recv(100) == b"+OK\r\n"
        workers.append(peer)
    first = lambda: person.text("tbody th a")
    person.go("/workers")
    for expected in ["ann", "bob"]:
        person.click("Worker", "thead")
        person.wait(expected, lambda: first() == expected)
    push(person.address, "alpha", "1")
    for number in range(3):
        push(person.address, "beta", str(number))
    lists = {
        "/workers": ["Worker", "Works on", "Connections", "Host", "Memory", "Last beat"],
        "/queues": ["Queue", "Ready", "In hand", "Dead", "In /s", "Out /s", "Oldest", "Workers"],
        "/jobs": ["Job", "State", "Queue", "What", "Tries", "When", "Last error"],
        "/jobs?state=dead": ["When"],
        "/batches": ["Batch", "Progress", "When all have run", "When all have succeeded", "Created"],
        "/schedules": ["Schedule", "Queue", "When", "Next run", "Last run", "Runs left"],
        "/connections": ["Number", "Name", "Protocol", "Address", "Jobs", "State"],
    }
    for path, headings in lists.items():
        person.go(path)
        links = {}
        person.wait(path, lambda: links.update({it.text: it.get_attribute("href") for it in person.all("thead a")}) is None)
        assert list(links) == headings or path == "/jobs?state=dead" and headings[0] in links, (path, list(links))
        for heading in headings:
            ways, address = set(), links[heading]
            for _ in range(2):
                page = urllib.request.urlopen(address).read().decode()
                way, again = re.search(r'aria-sort="(\w+)"><a href="([^"]+)">' + re.escape(heading), page).groups()
                ways.add(way)
                address = person.address + path.split("?")[0] + html.unescape(again)
            assert ways == {"ascending", "descending"}, (path, heading, ways)
    person.go("/queues")
    person.wait("by name at first", lambda: first() == "alpha")
    person.click("Ready", "thead")
    person.wait("the longest queue", lambda: first() == "beta")
    person.go("/jobs?queue=mails")
    person.click("Last error", "thead")
    error = lambda: person.text("tbody .error")
    person.wait("an error of the alphabet's beginning", lambda: "after 3000 ms" in error())
    person.click("Last error", "thead")
    person.wait("the other way round", lambda: "after 3002 ms" in error())
    # Jobs without an error are the last either way.
    person.wait("a job without an error", lambda: "Timeout" not in person.all("tbody tr")[-1].text)


def looks(person, axe):
    """Every page in both themes at three widths: no violation of accessibility, and nothing beside the screen."""
    batch = fill(person.address)
    script = open(axe).read()
    job = person.job("dead")
    person.go("/history?outcome=dead")
    person.wait("an ended job", lambda: person.browser.refresh() is None and len(person.all("tbody th a")) > 0)
    ended = urllib.parse.urlsplit(person.one("tbody th a").get_attribute("href")).path
    paths = [*PAGES, ended, "/history?queue=mails&since=1h", "/history/kinds?since=7d", "/jobs?state=dead", "/jobs?error=x", f"/jobs/{job}", f"/push?job={job}", "/push", "/queues/mails", "/queues/mails/settings", "/dead?state=retrying", f"/batches/{batch}", "/search?q=nothing", "/search", "/nowhere", "/jobs/None"]
    found = []
    for theme in ["light", "dark"]:
        person.emulate("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        for width in WIDTHS:
            person.emulate("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
            for path in paths:
                person.go(path)
                person.wait("the page", lambda: person.text("h1") != "")
                beside = person.browser.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
                # The rules are about content and colours; the width changes only what stands beside the screen.
                if width == WIDTHS[0]:
                    person.browser.execute_script(script)
                    seen = person.browser.execute_async_script("axe.run().then((it) => arguments[0](it.violations))")
                    found += [(path, width, theme, it["id"], it["nodes"][0]["html"][:120]) for it in seen]
                found += [(path, width, theme, f"{beside} px beside the screen")] if beside > 0 else []
    assert found == [], "\n".join(map(str, found))


def keys(person):
    """Search, rows and selections without a mouse; and a daemon that does not answer."""
    fill(person.address)
    person.go("/jobs?state=dead")
    person.type("j", "j")
    assert len(person.all("tr.current")) == 1
    second = person.text("tr.current th a")
    person.type("x")
    person.wait("a selection", lambda: person.text("[data-count]") == "1 selected")
    person.type("x", "?")
    person.wait("the keys", lambda: person.one("#keys").is_displayed())
    person.type(Keys.ESCAPE)
    person.wait("no list", lambda: not person.one("#keys").is_displayed())
    person.browser.switch_to.active_element.send_keys("/")
    person.browser.switch_to.active_element.send_keys("jid-0000" + Keys.ENTER)
    person.wait("the job of this name", lambda: person.text("h1").startswith("Job ") and "jid-0000" in person.text("h1"))
    person.go(f"/search?q={second}")
    person.wait("the job of this number", lambda: person.text("h1").startswith(f"Job {second}"))
    person.go("/search?q=mails")
    person.wait("the queue of this name", lambda: person.text("h1") == "mails")

    # The errors of dead jobs are a few, and a group is retried: those of the page's queue, and of exactly this error.
    person.go("/dead?queue=elsewhere")
    assert "No job is dead." in person.text()
    person.go("/dead?queue=mails")
    href = person.one("tbody th a").get_attribute("href")
    assert "queue=mails" in href and "error_group=Timeout" in href, href
    assert "Timeout: no answer after * ms" in person.text("table") and len(person.all("tbody tr")) == 1, person.text("table")
    person.click("Retry", "tbody")
    assert person.confirm() == "Retry all 3 jobs that match?"
    person.wait("no dead job", lambda: "No job is dead." in person.text())

    # Two of the jobs that had died run again as new ones.
    person.go("/history?queue=mails&outcome=dead")
    person.wait("three ends", lambda: person.browser.refresh() is None and len(person.all("tbody tr")) == 3)
    person.type("j", "x", "j", "x")
    person.wait("a selection", lambda: person.text("[data-count]") == "2 selected")
    person.one("[data-rate]").send_keys("1")
    person.click("Run again", "main")
    assert person.confirm() == "Push 2 jobs once more, 1 a second?"
    person.wait("what was done", lambda: person.text("#message") == "Run again: 2 jobs.")

    # The job of a batch leads to it, and is pushed again with another argument, as a job of Faktory.
    person.go("/queues/parts")
    person.press("tbody th a")
    person.press("dl a[href^='/batches/']")
    person.wait("its batch", lambda: "nightly" in person.text("h1") and "0 of 1 have succeeded" in person.text("dl"))
    person.press("tbody th a")
    person.click("Edit and push again")
    person.wait("the form", lambda: person.one("[name=jobtype]").get_attribute("value") == "Part")
    for name, text in [("args", "[12345678901234567890]"), ("custom", "")]:
        person.one(f"[name={name}]").clear()
        person.one(f"[name={name}]").send_keys(text)
    person.click("Push", "main")
    person.wait("the new job", lambda: "12345678901234567890" in person.text(".tree"))
    assert "parts faktory" in person.text("dl") and "Batch" not in person.text("dl"), person.text("dl")

    # A daemon that is gone, and one that hangs; with a selected row, too, which stays selected.
    person.emulate("Network.enable")
    for terms in [{"offline": True, "latency": 0}, {"offline": False, "latency": 600_000}]:
        person.go("/jobs?state=ready")
        person.press("[data-id]")
        person.emulate("Network.emulateNetworkConditions", downloadThroughput=-1, uploadThroughput=-1, **terms)
        person.wait("what is lost", lambda: person.text(".lost").startswith("No answer since "))
        assert person.all("body.stale") != []
        person.emulate("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)
        person.wait("it is back", lambda: person.all(".lost") == [] and person.all("body.stale") == [])
        assert len(person.all("[data-id]:checked")) == 1


def fill(address):
    """Three dead jobs of one error, jobs that wait, and a batch of one, whose name is the answer."""
    with socket.create_connection(("127.0.0.1", int(FAKTORY))) as peer:
        lines = peer.makefile("rwb")
        lines.readline()

        def ask(verb, value):
            lines.write(f"{verb} {value if isinstance(value, str) else json.dumps(value)}\r\n".encode())
            lines.flush()
            answer = lines.readline()
            if not answer.startswith(b"$") or answer[1:2] == b"-":
                return answer
            text = lines.read(int(answer[1:]) + 2).decode().strip()
            return json.loads(text) if text.startswith("{") else text

        ask("HELLO", {"v": 2, "hostname": "host", "wid": "worker-1", "pid": 1, "labels": ["ruby"]})
        for number in range(3):
            job = {"jid": f"jid-000{number}", "queue": "mails", "jobtype": "Welcome", "args": [number], "retry": -1}
            assert ask("PUSH", job) == b"+OK\r\n"
        for number in range(3):
            jid = ask("FETCH", "mails")["jid"]
            ask("FAIL", {"jid": jid, "errtype": "Timeout", "message": f"no answer after {3000 + number} ms", "backtrace": ["a.rb:1"]})
        ask("PUSH", {"jid": "jid-waits", "queue": "mails", "jobtype": "Welcome", "args": ["x" * 400]})
        batch = ask("BATCH NEW", {"description": "nightly", "success": {"jid": "callback-1", "jobtype": "Done", "args": []}})
        ask("PUSH", {"jid": "jid-member", "queue": "parts", "jobtype": "Part", "args": [], "custom": {"bid": batch}})
        return batch


def bulk(person):
    """100,000 dead jobs are retried by filter, after a question with their number."""
    person.go("/jobs?state=dead&queue=many")
    person.wait("the number beside the box", lambda: any(map(str.isdigit, person.text("[data-matching]"))))
    person.press("[data-match]")
    person.click("Retry")
    assert person.confirm() == "Retry all 100,000 jobs that match?"
    person.wait("the end", lambda: person.text("#message") == "Retry: 100,000 jobs.")
    assert "No job matches." in person.text()
    # A selection.
    person.go("/jobs?queue=few")
    assert len(person.all("[data-id]")) == 3
    person.press("[data-id]", 0)
    person.press("[data-id]", 1)
    assert person.text("[data-count]") == "2 selected"
    person.click("Delete")
    assert person.confirm() == "Delete 2 jobs? They are lost."
    person.wait("one job", lambda: len(person.all("[data-id]")) == 1)
    assert person.complaints() == [], person.complaints()


def reader(person):
    """Whoever may only read logs in and out with the form, and sees no button that changes something."""

    def log_in(password):
        person.wait("the form", lambda: person.text("h1") == "Log in")
        for field, text in [("name", "eve"), ("password", password)]:
            person.one(f"[name={field}]").clear()
            person.one(f"[name={field}]").send_keys(text)
        person.click("Log in", "main")

    person.go("/queues/few")
    log_in("read-wrong")
    person.wait("a refusal", lambda: person.text(".error") == "invalid login")
    log_in("read-read")
    person.wait("the page that was asked for", lambda: person.text("h1") == "few")
    assert "eve (read)" in person.text("header"), person.text("header")
    assert person.browser.execute_script("return document.cookie") == "", "no script sees the cookie"
    for path in ["/queues", "/queues/few", "/jobs", "/jobs/1", "/workers", "/schedules", "/batches", "/throttles", "/connections"]:
        person.go(path)
        person.wait("the page", lambda: person.text("h1") != "")
        assert [it.get_attribute("textContent") for it in person.all("main button")] in ([], ["Filter"]), path
    person.go("/jobs")
    live = person.browser.execute_async_script(
        "fetch(location.origin + '/api/v1/queues/few/pause', {method: 'POST'}).then((it) => arguments[0](it.status), (it) => arguments[0](String(it)))"
    )
    assert live == 403, live
    # Another page logs out; this one finds out by itself.
    person.browser.execute_async_script("fetch(location.origin + '/logout', {method: 'POST'}).then(arguments[0], arguments[0])")
    person.wait("the form", lambda: person.text("h1") == "Log in")
    log_in("read-read")
    person.wait("the page that was shown", lambda: person.text("h1") == "Jobs")
    person.click("Log out", "header")
    person.wait("the form", lambda: person.text("h1") == "Log in")
    person.go("/")
    person.wait("the form again", lambda: person.text("h1") == "Log in")


if __name__ == "__main__":
    scene, address, *others = sys.argv[1:]
    FAKTORY = others.pop(0) if others else ""
    person = Person(address)
    try:
        {"tour": tour, "bulk": bulk, "reader": reader, "looks": looks, "keys": keys, "settings": settings, "sorts": sorts}[scene](person, *others)
    finally:
        person.browser.quit()
