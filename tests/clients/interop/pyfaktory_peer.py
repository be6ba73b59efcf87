"""PyPI `pyfaktory` with all its features, on a daemon of its own. Exits with 0 on success.

Usage: pyfaktory_peer.py tcp[+tls]://[:PASSWORD@]HOST:PORT SCENE
"""
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

from pyfaktory import Client, Consumer, FaktroyWorkProtocolError, Job, JobFilter, MutateOperation, Producer
from pyfaktory.util.enums import State

URL = sys.argv[1]
SCENES = {}
PATIENCE = 30


def scene(function):
    SCENES[function.__name__] = function


@contextmanager
def connected(role="both", **more):
    # The heartbeat thread runs for one more period than its client.
    if role != "producer":
        more = {"beat_period": 0.05, "worker_id": uuid.uuid4().hex, **more}
    with Client(faktory_url=URL, role=role, **more) as client:
        yield client


def wait_until(what, is_so):
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def expect(found, wanted):
    assert found == wanted, f"{found!r}, not {wanted!r}"


def sets(client):
    """The number of jobs in each set."""
    tasks = client.info()["faktory"]["tasks"]
    return {name: tasks[name]["size"] for name in ("Scheduled", "Retries", "Dead")}


def mutate(client, cmd, target, **chosen):
    chosen = JobFilter(**{"jids": None, "regexp": None, "jobtype": None, **chosen}) if chosen else None
    assert client.mutate(MutateOperation(cmd=cmd, target=target, filter=chosen))


def fetch_all(client, *queues):
    """Fetches and acknowledges all jobs; returns their arguments."""
    found = []
    while job := client._fetch(list(queues)):
        client._ack(job["jid"])
        found.append(job["args"])
    return found


@scene
def push_fetch_ack():
    with connected() as client:
        sent = Job(jobtype="t", args=[1, "zwei", {"b": [None, 12345678901234567890], "a": 1.5}], custom={"x": "ü"})
        assert Producer(client).push(sent)
        job = client._fetch(["elsewhere", "default"])
        for key in ("jid", "jobtype", "args", "queue", "reserve_for", "retry", "backtrace", "custom"):
            expect(job[key], getattr(sent, key))
        assert client._ack(job["jid"])
        assert client._ack(job["jid"]), "twice is no mistake"
        expect(client._fetch(["default"]), None)
        expect(client.info()["faktory"]["total_processed"], 1)


@scene
def bulk():
    with connected() as client:
        jobs = [Job(jobtype="t", args=[n]) for n in range(3)] + [Job(jid="short", jobtype="t", args=[])]
        expect(Producer(client).push_bulk(jobs), {"short": "jobs must have a reasonable jid parameter"})
        expect(fetch_all(client, "default"), [[0], [1], [2]])


@scene
def refused():
    with connected() as client:
        try:
            Producer(client).push(Job(jobtype="", args=[]))
        except FaktroyWorkProtocolError as error:
            assert "jobs must have a jobtype parameter" in str(error), error
        else:
            raise AssertionError("a job without a jobtype")
        assert Producer(client).push(Job(jobtype="t", args=[])), "and the connection goes on"


@scene
def fail():
    with connected() as client:
        Producer(client).push(Job(jobtype="t", args=[], retry=1))
        jid = client._fetch(["default"])["jid"]
        assert client._fail(jid, "ValueError", "no luck", ["line 1", "line 2"])
        expect(sets(client), {"Scheduled": 0, "Retries": 1, "Dead": 0})

        mutate(client, "requeue", "retries", jids=[jid])
        job = client._fetch(["default"])
        expect(job["jid"], jid)
        wanted = {"retry_count": 0, "remaining": 1, "errtype": "ValueError", "message": "no luck"}
        expect({key: job["failure"][key] for key in wanted}, wanted)
        expect(job["failure"]["backtrace"], ["line 1", "line 2"])

        assert client._fail(jid, "ValueError", "again", [])
        expect(sets(client), {"Scheduled": 0, "Retries": 0, "Dead": 1})
        expect(client.info()["faktory"]["total_failures"], 2)


@scene
def beat():
    name = uuid.uuid4().hex
    with connected(worker_id=name) as one, connected(worker_id=name) as other, connected() as stranger:
        assert one._beat(rss_kb=4711)
        one._set_state(State.QUIET)
        wait_until("the other connection of the worker goes quiet", lambda: other.state == State.QUIET)
        Producer(stranger).push(Job(jobtype="t", args=[]))
        expect(other._send_and_receive("FETCH default\r\n"), "$-1")
        expect(one._send_and_receive("FETCH default\r\n"), "$-1")
        expect(fetch_all(stranger, "default"), [[]])
        one._send_and_receive('BEAT {"wid": "%s", "current_state": "terminate"}\r\n' % name)
        wait_until("the worker ends", lambda: State.TERMINATING == one.state == other.state)
        assert stranger._beat()
        expect(stranger.state, State.IDENTIFIED)


@scene
def mutations():
    soon = (datetime.now(timezone.utc) + timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    with connected() as client:
        producer = Producer(client)
        for jobtype in ("apple", "pear"):
            for n in range(2):
                producer.push(Job(jobtype=jobtype, args=[f"{jobtype}{n}"], at=soon))
        expect(sets(client), {"Scheduled": 4, "Retries": 0, "Dead": 0})
        mutate(client, "kill", "scheduled", jobtype="apple")
        expect(sets(client), {"Scheduled": 2, "Retries": 0, "Dead": 2})
        mutate(client, "requeue", "scheduled", regexp="*pear0*")
        expect(fetch_all(client, "default"), [["pear0"]])
        mutate(client, "discard", "dead", regexp="*apple0*", jobtype="apple")
        expect(sets(client), {"Scheduled": 1, "Retries": 0, "Dead": 1})
        mutate(client, "requeue", "dead")
        expect(fetch_all(client, "default"), [["apple1"]])
        mutate(client, "clear", "scheduled")
        expect(sets(client), {"Scheduled": 0, "Retries": 0, "Dead": 0})


@scene
def queues():
    with connected() as client:
        producer = Producer(client)
        for queue in ("one", "two", "three"):
            producer.push(Job(jobtype="t", args=[queue], queue=queue))
        assert client.queue_pause(["one", "two"])
        expect(fetch_all(client, "one", "two", "three"), [["three"]])
        assert client.queue_unpause(["two"])
        expect(fetch_all(client, "one", "two"), [["two"]])
        assert client.queue_unpause(all_queues=True)
        assert client.queue_pause(all_queues=True)
        expect(fetch_all(client, "one"), [])
        assert client.queue_unpause(all_queues=True)
        assert client.queue_remove(["one"])
        expect(client.info()["faktory"]["queues"], {"two": 0, "three": 0})
        assert client.queue_remove(all_queues=True)
        expect(client.info()["faktory"]["queues"], {})


@scene
def scheduled():
    at = datetime.now(timezone.utc) + timedelta(seconds=1)
    with connected() as client:
        Producer(client).push(Job(jobtype="t", args=["later"], at=at.isoformat()))
        Producer(client).push(Job(jobtype="t", args=["past"], at="2001-02-03T04:05:06+02:00"))
        expect(client._fetch(["default"])["args"], ["past"])
        job = None
        while job is None:
            job = client._fetch(["default"])
        expect((job["args"], job["at"]), (["later"], at.isoformat()))
        assert datetime.now(timezone.utc) >= at, "before its time"


@scene
def info():
    with connected("producer") as client:
        Producer(client).push(Job(jobtype="t", args=[]))
        info = client.info()
        expect(info["faktory"]["queues"], {"default": 1})
        expect(info["faktory"]["total_enqueued"], 1)
        expect(info["faktory"]["total_queues"], 1)
        expect(info["server"]["connections"], 1)
        expect(info["server"]["faktory_version"].split(".")[0], "1")
        datetime.strptime(info["server_utc_time"], "%H:%M:%S UTC")


@scene
def produce():
    """Pushes until the connection breaks, and prints the name of each job that was acknowledged."""

    def push_on(_):
        client = Client(faktory_url=URL)
        client.connect()
        while True:
            job = Job(jobtype="t", args=["x" * 100], queue="q")
            try:
                Producer(client).push(job)
            except OSError:
                return
            except FaktroyWorkProtocolError as error:
                if "Server closed connection" in str(error):
                    return
                raise
            print(f"{job.jid}\n", end="", flush=True)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(push_on, range(4)))


def work(jid, way):
    """The work of the consumer's processes."""
    if way == "fail":
        raise ValueError(f"{jid} fails")


@scene
def consumer():
    """The library's own worker, with its pool of processes."""
    jobs = [Job(jobtype="work", args=[way], queue="q") for way in ("do", "fail", "do")]
    with connected("producer") as client:
        Producer(client).push_bulk(jobs)

    name = uuid.uuid4().hex
    done = threading.Event()

    def stop_when_done():
        with connected("producer") as client:
            try:
                wait_until("all is worked on", lambda: client.info()["faktory"]["total_processed"] == 3)
                expect(client.info()["faktory"]["total_failures"], 1)
                expect(sets(client), {"Scheduled": 0, "Retries": 1, "Dead": 0})
                done.set()
            finally:
                # A signal may break a FETCH off. Its answer then comes with that of the next BEAT, and two answers at once
                # are what the client waits behind until its socket times out.
                client._send_and_receive('BEAT {"wid": "%s", "current_state": "terminate"}\r\n' % name)

    with connected("consumer", worker_id=name) as client:
        worker = Consumer(client, queues=["q"], concurrency=2)
        worker.register("work", work, bind=True)
        threading.Thread(target=stop_when_done, daemon=True).start()
        try:
            worker.run()
        except SystemExit:
            assert done.is_set(), "it gave up"


if __name__ == "__main__":
    SCENES[sys.argv[2]]()
