"""A person with a browser: Chromium, driven over its own protocol. `pages_peer.py SCENE ADDRESS`."""

import sys
import urllib.parse
import urllib.request

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

PATIENCE_S = 60
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
        self.wait(selector, lambda: self.all(selector)[index].click() is None)

    def confirm(self):
        self.wait("a question", lambda: self.one("dialog").is_displayed())
        question = self.text("#question")
        self.press("#answer")
        return question

    def complaints(self):
        # A page that is not found is one of the scenes.
        return [it["message"] for it in self.browser.get_log("browser") if "404" not in it["message"]]


def push(address, queue, body):
    path = f"{address}/api/v1/queues/{urllib.parse.quote(queue, safe='')}/jobs"
    urllib.request.urlopen(urllib.request.Request(path, data=body.encode(), method="POST")).read()


def take(address, queue, worker):
    path = f"{address}/api/v1/queues/{queue}/take?worker={worker}"
    urllib.request.urlopen(urllib.request.Request(path, method="POST")).read()


def tour(person):
    """Through all pages; a queue is paused and its jobs are filtered; names and bodies are shown, not run."""
    push(person.address, EVIL, '{"a":12345678901234567890,"b":"' + EVIL.replace('"', '\\"') + '"}')
    push(person.address, "mails", "needle in a body")
    push(person.address, "mails", "another")
    person.go("/")
    for page, heading in [("Queues", "Queues"), ("Jobs", "Jobs"), ("Dead letters", "Jobs"), ("Workers", "Workers"), ("Schedules", "Schedules"), ("Batches", "Batches"), ("Throttles", "Throttles"), ("Connections", "Connections"), ("Overview", "Overview")]:
        person.click(page, "nav")
        person.wait(page, lambda: (person.text("h1"), person.text("nav [aria-current]")) == (heading, page))

    person.go("/queues")
    person.press("[data-send='POST /queues/mails/pause']")
    person.wait("a paused queue", lambda: "mails paused" in person.text("table"))
    person.go("/queues/mails")
    person.click("Resume")
    person.wait("a queue that is not paused", lambda: person.text("h1") == "mails")

    person.go("/jobs")
    person.one("[name=text]").send_keys("needle")
    Select(person.one("[name=state]")).select_by_visible_text("ready")
    person.click("Filter")
    person.wait("one job", lambda: len(person.all("tbody tr")) == 1 and "needle" in person.browser.current_url)
    person.press("tbody th a")
    person.wait("a reason", lambda: "no worker serves mails" in person.text(".why"))
    assert person.text("details[open] pre") == "needle in a body"

    person.go("/queues/" + urllib.parse.quote(EVIL, safe=""))
    assert person.text("h1") == EVIL
    person.press("tbody th a")
    person.wait("a number that is not rewritten", lambda: "12345678901234567890" in person.text("details[open] pre"))
    assert EVIL.replace('"', '\\"') in person.text("details[open] pre")
    person.click("Delete")
    assert "lost" in person.confirm()
    person.wait("a job that is gone", lambda: "404" in person.text("h1"))
    for path in ["/", "/queues", "/jobs"]:
        person.go(path)
        assert person.all("img") == [] and person.browser.title != "run", path

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
    person.one("[name=queue]").send_keys("soon")
    person.one("[name=jobs]").send_keys("7")
    person.click("Limit")
    person.wait("a new queue", lambda: "soon is new" in person.text("#message") and "soon" in person.text("table"))
    person.go("/queues/soon")
    assert "With 7 jobs it takes no more" in person.text("main")
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


def bulk(person):
    """100,000 dead jobs are retried by filter, after a question with their number."""
    person.go("/jobs?state=dead&queue=many")
    person.wait("the number beside the box", lambda: any(map(str.isdigit, person.text("[data-matching]"))))
    person.press("[data-match]")
    person.click("Retry")
    assert person.confirm() == "Retry all 100000 jobs that match?"
    person.wait("the end", lambda: person.text("#message") == "Retry: 100000 jobs.")
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
    person.wait("a refusal", lambda: person.text(".error") == "the login is wrong")
    log_in("read-read")
    person.wait("the page that was asked for", lambda: person.text("h1") == "few")
    assert "eve (read)" in person.text("header"), person.text("header")
    assert person.browser.execute_script("return document.cookie") == "", "no script sees the cookie"
    for path in ["/queues", "/queues/few", "/jobs", "/jobs/1", "/workers", "/schedules", "/batches", "/throttles", "/connections"]:
        person.go(path)
        person.wait("the page", lambda: person.text("h1") != "")
        assert [it.text for it in person.all("main button")] in ([], ["Filter"]), path
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
    scene, address = sys.argv[1:]
    person = Person(address)
    try:
        {"tour": tour, "bulk": bulk, "reader": reader}[scene](person)
    finally:
        person.browser.quit()
