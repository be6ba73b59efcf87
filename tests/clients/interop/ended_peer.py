"""Stock clients that push one job for each way in which it can end, and end it: PyPI `gear` (Gearman), PyPI `pyfaktory` and
`faktory` (FWP), the released client and JobManager (EventMQ), and pyzmq (spiderq). `ended.rs` compares the rows of the
history with what is printed here, one line of JSON for each job: what the clients know of it.

Usage: ended_peer.py SCENE HTTP [PROTOCOL=HOST:PORT ...]
"""
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
SCENE, HTTP, *ADDRESSES = sys.argv[1:]
ADDRESS = dict(address.split("=") for address in ADDRESSES)
SCENES = {}
PATIENCE = 60


def scene(function):
    SCENES[function.__name__] = function


# ---- the daemon over HTTP --------------------------------------------------------------------------------------------


def ask(path, method="GET"):
    request = urllib.request.Request(f"http://{HTTP}/api/v1{path}", method=method, data=b"" if method == "POST" else None)
    with urllib.request.urlopen(request) as answer:
        text = answer.read()
        return json.loads(text) if text else None


def wait_until(what, is_so):
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def jobs(queue, **more):
    conditions = "".join(f"&{name}={value}" for (name, value) in more.items())
    return ask(f"/jobs?queue={queue}{conditions}")["jobs"]


def wait_until_gone(queue):
    """Some are kept for a while although they are over."""
    wait_until(f"{queue} is empty", lambda: all(job["state"] == "done" for job in jobs(queue)))


def wait_until_dead(queue):
    wait_until(f"the job of {queue} is dead", lambda: [job["state"] for job in jobs(queue)] == ["dead"])


def wait_until_taken(queue):
    wait_until(f"the job of {queue} runs", lambda: [job["state"] for job in jobs(queue)] == ["leased"])


def number(queue):
    """A job with little time may be over before its number is asked for."""
    if found := jobs(queue):
        return found[0]["id"]
    wait_until(f"the history has the job of {queue}", lambda: ask(f"/ended?queue={queue}")["ended"])
    return ask(f"/ended?queue={queue}")["ended"][0]["job"]


KNOWN = {}


def know(queue, case=None, **facts):
    """Notes what is known of the only job of a queue, and its number."""
    if "job" not in facts:
        facts["job"] = number(queue)
    KNOWN.setdefault(case or queue, {}).update(facts)
    return facts["job"]


def address(socket):
    """The history has no ports."""
    return socket.getsockname()[0]


def run_again(queue):
    """Runs the job of a queue again that has ended."""
    wait_until(f"the history has the job of {queue}", lambda: ask(f"/ended?queue={queue}")["ended"])
    row = ask(f"/ended?queue={queue}")["ended"][0]
    new = ask(f"/ended/{row['id']}/again", "POST")["id"]
    assert new != row["job"]
    return row["job"], new


def wait_until_run_again(queue, old, new):
    rows = lambda: [row for row in ask(f"/ended?again_of={old}")["ended"]]
    wait_until(f"{queue} has run again", rows)
    assert [(row["job"], row["outcome"], row["again_of"], row["queue"]) for row in rows()] == [(new, "done", old, queue)]


# ---- FWP -------------------------------------------------------------------------------------------------------------


class Fwp:
    """A producer and a worker."""

    def __init__(self, worker="ended-worker"):
        from pyfaktory import Client, Producer

        url = f"tcp://{ADDRESS['faktory']}"
        self.client = Client(faktory_url=url, role="producer")
        self.client.connect()
        self.producer = Producer(self.client)
        # Its own thread for heartbeats is not needed: no scene takes as long as a worker may be silent.
        self.worker = Client(faktory_url=url, role="both", worker_id=worker)
        self.worker.connect()

    def push(self, queue, **more):
        from pyfaktory import Job

        self.send(Job(**{"jid": f"{queue}-0001", "jobtype": "Type", "args": [queue], "queue": queue, "retry": 0, **more}))

    def send(self, job):
        assert self.producer.push(job)
        know(job.queue, name=job.jid, producer=address(self.client.sock))

    def take(self, queue):
        job = None
        while job is None:
            job = self.worker._fetch([queue])
        if queue in KNOWN:
            know(queue, job=KNOWN[queue]["job"], worker=self.worker.worker_id, worker_address=address(self.worker.sock))
        return job["jid"]

    def do(self, queue):
        assert self.worker._ack(self.take(queue))

    def fail(self, queue, errtype="ValueError", message="no luck"):
        assert self.worker._fail(self.take(queue), errtype, message, ["line 1", "line 2"])

    def mutate(self, cmd, target, queue):
        from pyfaktory import JobFilter, MutateOperation

        jobs = JobFilter(jids=[KNOWN[queue]["name"]], regexp=None, jobtype=None)
        assert self.worker.mutate(MutateOperation(cmd=cmd, target=target, filter=jobs))


HOUR_LATER = "2999-01-01T00:00:00Z"


@scene
def faktory():
    fwp = Fwp()
    fwp.push("fwp-done")
    fwp.do("fwp-done")

    fwp.push("fwp-failed")
    fwp.fail("fwp-failed")

    fwp.push("fwp-dead", retry=1)
    fwp.fail("fwp-dead", "IOError", "no route")
    fwp.mutate("requeue", "retries", "fwp-dead")
    fwp.fail("fwp-dead")

    fwp.push("fwp-retried", retry=-1)
    fwp.fail("fwp-retried")
    fwp.mutate("requeue", "dead", "fwp-retried")
    fwp.do("fwp-retried")

    fwp.push("fwp-cancelled", at=HOUR_LATER)
    fwp.mutate("discard", "scheduled", "fwp-cancelled")

    fwp.push("fwp-given-up", retry=5)
    fwp.fail("fwp-given-up")
    fwp.mutate("discard", "retries", "fwp-given-up")

    fwp.push("fwp-killed", at=HOUR_LATER)
    fwp.mutate("kill", "scheduled", "fwp-killed")

    fwp.push("fwp-buried", retry=-1)
    fwp.fail("fwp-buried")
    fwp.mutate("discard", "dead", "fwp-buried")

    fwp.push("fwp-deleted")
    assert fwp.worker.queue_remove(["fwp-deleted"])

    fwp.push("fwp-expired")
    wait_until_gone("fwp-expired")

    fwp_lost(fwp)


def fwp_lost(fwp):
    """A reservation ends. pyfaktory makes none that is shorter than a minute."""
    import faktory

    client = faktory.Client(faktory=f"tcp://{ADDRESS['faktory']}")
    client.connect()
    jid = "fwp-lost-0001"
    assert client.queue("Type", args=["fwp-lost"], queue="fwp-lost", retry=0, jid=jid, reserve_for=1)
    know("fwp-lost", name=jid, producer=address(client.faktory.socket))
    fwp.take("fwp-lost")
    wait_until_gone("fwp-lost")
    client.disconnect()


# ---- Gearman ---------------------------------------------------------------------------------------------------------


class Gear:
    def __init__(self):
        self.client, self.worker, self.last = self.new_client(), self.new_worker("ended-worker"), None

    @staticmethod
    def connected(peer):
        host, port = ADDRESS["gearman"].split(":")
        peer.addServer(host, int(port))
        peer.waitForServer()
        return peer

    def new_client(self):
        import gear

        return self.connected(gear.Client("ended-client"))

    def new_worker(self, name):
        import gear

        return self.connected(gear.Worker(name))

    def submit(self, queue, body=None, unique=None, background=True, client=None):
        import gear

        client, unique = client or self.client, unique or f"{queue}-unique"
        job = gear.Job(queue.encode(), body or queue.encode(), unique=unique.encode())
        client.submitJob(job, background=background)
        know(
            queue,
            unique=unique,
            job=int(job.handle.decode().rsplit(":", 1)[1]),
            producer=address(client.active_connections[0].conn),
        )
        return job

    def take(self, queue, worker=None):
        if worker is None:
            worker = self.worker
            # Only now: CANT_DO returns a job that the worker has not ended.
            if self.last not in (None, queue):
                worker.unRegisterFunction(self.last.encode())
            self.last = queue
        worker.registerFunction(queue.encode())
        job = worker.getJob()
        assert job.name == queue, (job.name, queue)
        if queue in KNOWN:
            know(queue, job=KNOWN[queue]["job"], worker=worker.client_id.decode(), worker_address=address(job.connection.conn))
        return job


@scene
def gearman():
    import gear

    peers = Gear()
    peers.submit("gear-done")
    job = peers.take("gear-done")
    job.sendWorkStatus(1, 2)
    job.sendWorkData(b"half of ")
    job.sendWorkWarning(b"mind the gap")
    job.sendWorkComplete(b"whole")

    peers.submit("gear-failed")
    peers.take("gear-failed").sendWorkFail()

    peers.submit("gear-raised")
    peers.take("gear-raised").sendWorkException(b"went wrong")

    peers.submit("gear-dead")
    peers.take("gear-dead").sendWorkFail()
    peers.take("gear-dead").sendWorkFail()
    wait_until_dead("gear-dead")

    job = peers.submit("gear-cancelled")
    request = gear.CancelJobAdminRequest(job.handle)
    peers.client.active_connections[0].sendAdminRequest(request)
    assert request.response == b"OK\r\n", request.response

    leaver = peers.new_client()
    peers.submit("gear-left", background=False, client=leaver)
    leaver.shutdown()
    wait_until_gone("gear-left")

    peers.submit("gear-expired")
    wait_until_gone("gear-expired")

    peers.submit("gear-deleted")
    peers.take("gear-deleted").sendWorkFail()
    wait_until_dead("gear-deleted")
    ask(f"/jobs/{KNOWN['gear-deleted']['job']}", "DELETE")

    peers.submit("gear-lost")
    for name in ["first", "second"]:
        # A worker that is lost once is replaced by another one.
        worker = peers.new_worker(f"ended-{name}")
        peers.take("gear-lost", worker)
        worker.shutdown()
    wait_until_dead("gear-lost")


# ---- EventMQ ---------------------------------------------------------------------------------------------------------


class EventMq:
    def __init__(self):
        from eventmq.client import messages
        from eventmq.sender import Sender

        self.messages, self.sender = messages, Sender()
        self.sender.connect(f"tcp://{ADDRESS['eventmq']}")
        self.programs, self.notes = [], tempfile.NamedTemporaryFile()

    def push(self, queue, task, *args, **more):
        name = self.messages.defer_job(self.sender, f"tasks.{task}", args=args, queue=queue, guarantee=True, **more)
        assert self.sender.zsocket.poll(PATIENCE * 1000), "no answer"
        self.sender.zsocket.recv_multipart()
        know(queue, unique=name)

    def hire(self, *queues):
        at = f"tcp://{ADDRESS['eventmq']}"
        manager = os.path.join(os.path.dirname(sys.executable), "emq-jobmanager")
        program = subprocess.Popen(
            [sys.executable, "-W", "ignore", manager],
            env={
                **os.environ,
                **{f"EVENTMQ_WORKER_ADDR{name}": at for name in ["", "_DEFAULT", "_FAILOVER"]},
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": os.path.join(HERE, "../interop_eventmq"),
                "EVENTMQ_CONFIG_FILE": "/nonexistent",
                "EVENTMQ_QUEUES": json.dumps([[10, queue] for queue in queues]),
                "EVENTMQ_CONCURRENT_JOBS": "1",
                "TASK_NOTES": self.notes.name,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.programs.append(program)
        return program

    @staticmethod
    def kill(program):
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()

    def stop(self):
        for program in self.programs:
            if program.poll() is None:
                self.kill(program)


@scene
def eventmq():
    peers = EventMq()
    try:
        play_eventmq(peers)
    finally:
        peers.stop()


def play_eventmq(peers):
    peers.push("emq-cancelled", "nothing")
    ask(f"/jobs/{KNOWN['emq-cancelled']['job']}/cancel", "POST")
    peers.push("emq-expired", "nothing")
    wait_until_gone("emq-expired")

    peers.push("emq-done", "note", 1, "two")
    peers.push("emq-failed", "fail", "no luck")
    peers.push("emq-dead", "fail", "no luck", retry_count=1)
    peers.hire("emq-done", "emq-failed", "emq-dead")
    wait_until_gone("emq-done")
    wait_until_dead("emq-dead")
    wait_until_dead("emq-failed")
    ask(f"/jobs/{KNOWN['emq-failed']['job']}", "DELETE")

    with tempfile.NamedTemporaryFile() as held:
        peers.push("emq-lost", "hold", "emq-lost", held.name)
        for _ in range(2):
            # A job that was lost once is tried again.
            program = peers.hire("emq-lost")
            wait_until_taken("emq-lost")
            peers.kill(program)
            wait_until("the job is lost", lambda: [job["state"] for job in jobs("emq-lost")] != ["leased"])
        wait_until_dead("emq-lost")


# ---- spiderq ---------------------------------------------------------------------------------------------------------


class Spiderq:
    def __init__(self):
        import zmq

        self.socket = zmq.Context.instance().socket(zmq.REQ)
        self.socket.rcvtimeo = self.socket.sndtimeo = PATIENCE * 1000
        self.socket.connect(f"tcp://{ADDRESS['spiderq']}")

    def say(self, message):
        self.socket.send(message)
        return self.socket.recv()

    @staticmethod
    def vec(data):
        return struct.pack(">I", len(data)) + data

    def add(self, key):
        assert self.say(b"\x02" + self.vec(key.encode()) + self.vec(b"old") + b"\x02") == b"\x02"
        (job,) = [job["id"] for job in jobs("spiderq", key=key)]
        know("spiderq", case=key, job=job)

    def lend(self, ms=600_000):
        lent = self.say(b"\x04" + struct.pack(">QB", ms, 2))
        assert lent[:1] == b"\x06", lent
        (length,) = struct.unpack_from(">I", lent, 9)
        return lent[1:9], lent[13 : 13 + length]

    def repay(self, lease, status):
        lend_key, key = lease
        assert self.say(b"\x05" + lend_key + self.vec(key) + self.vec(b"new") + bytes([status])) == b"\x07"

    def remove(self, key):
        assert self.say(b"\x0c" + self.vec(key.encode())) == b"\x12"


@scene
def spiderq():
    peer = Spiderq()
    for (status, way) in [(1, "penalty"), (2, "reward"), (3, "front"), (4, "drop")]:
        peer.add(way)
        lease = peer.lend()
        assert lease[1] == way.encode()
        peer.repay(lease, status)
        if way != "drop":
            peer.remove(way)
    # Nobody repays the first loan. It is no end: the entry is lent again.
    peer.add("lost")
    peer.lend(ms=1)
    wait_until("the loan is over", lambda: [job["state"] for job in jobs("spiderq", key="lost")] == ["ready"])
    peer.repay(peer.lend(), 4)
    peer.add("cancelled")
    ask(f"/jobs/{KNOWN['cancelled']['job']}", "DELETE")


# ---- jobs that cross, belong together, or meet -----------------------------------------------------------------------


@scene
def together():
    from pyfaktory import Batch, Job

    peers, fwp = Gear(), Fwp()
    peers.submit("bridged")
    fwp.do("bridged")

    # The library returns the reply as it came, with its length in front.
    *_, bid = fwp.client._batch_new({"description": "ended", "success": {"jobtype": "After", "args": [], "queue": "callback"}}).split()
    fwp.send(Job(jid="member-0001", jobtype="Type", args=["member"], queue="member", custom={"bid": bid}))
    assert fwp.client._batch_commit(bid)
    # Batches have numbers of the same series as jobs, and this one was made just before its member.
    know("member", job=KNOWN["member"]["job"], batch=KNOWN["member"]["job"] - 1)
    fwp.do("member")
    wait_until("the callback of the batch is there", lambda: jobs("callback"))
    know("callback", name=jobs("callback")[0]["name"], batch=KNOWN["member"]["batch"])
    fwp.do("callback")

    for _ in range(3):
        peers.submit("coalesced", unique="same")
    peers.take("coalesced").sendWorkComplete(b"")

    peers.submit("once", unique="same")
    peers.take("once").sendWorkComplete(b"")
    first = KNOWN["once"]["job"]
    peers.submit("once", unique="same")
    assert KNOWN["once"]["job"] == first, KNOWN["once"]

    peers.submit("not-kept")
    peers.take("not-kept").sendWorkComplete(b"")
    wait_until_gone("not-kept")

    (schedule,) = ask("/schedules")["schedules"]
    job = ask(f"/schedules/{schedule['id']}/run", "POST")["id"]
    know("scheduled", job=job, schedule=schedule["id"], name=jobs("scheduled")[0]["name"])
    fwp.do("scheduled")


# ---- jobs that are run again --------------------------------------------------------------------------------------------


@scene
def again_faktory():
    fwp = Fwp()
    fwp.push("fwp-again", reserve_for=120, custom={"a": 1}, at="2001-01-01T00:00:00Z")
    fwp.do("fwp-again")
    numbers = run_again("fwp-again")
    job = fwp.worker._fetch(["fwp-again"])
    assert job["jid"] != "fwp-again-0001" and "at" not in job, job
    assert [job[name] for name in ["jobtype", "args", "reserve_for", "custom"]] == ["Type", ["fwp-again"], 120, {"a": 1}], job
    assert fwp.worker._ack(job["jid"])
    wait_until_run_again("fwp-again", *numbers)


@scene
def again_gearman():
    peers = Gear()
    peers.submit("gear-again", b"\xff\0")
    peers.take("gear-again").sendWorkComplete(b"")
    numbers = run_again("gear-again")
    job = peers.take("gear-again")
    assert job.arguments == b"\xff\0", job.arguments
    job.sendWorkComplete(b"")
    wait_until_run_again("gear-again", *numbers)


@scene
def again_eventmq():
    peers = EventMq()
    try:
        again_of_eventmq(peers)
    finally:
        peers.stop()


def again_of_eventmq(peers):
    peers.push("emq-again", "note", "again")
    peers.hire("emq-again")
    wait_until_run_again("emq-again", *run_again("emq-again"))
    with open(peers.notes.name) as notes:
        first, second = notes.read().splitlines()
    assert first == second and "again" in first, (first, second)


@scene
def again_spiderq():
    peer = Spiderq()
    peer.add("again")
    peer.repay(peer.lend(), 2)
    wait_until("the history has the entry", lambda: ask("/ended?name=again")["ended"])
    (row,) = ask("/ended?name=again")["ended"]
    try:
        run_again("spiderq")
        assert False, "two entries of one key"
    except urllib.error.HTTPError as refused:
        assert refused.code == 409
    peer.remove("again")
    new = ask(f"/ended/{row['id']}/again", "POST")["id"]
    lease = peer.lend()
    assert lease[1] == b"again"
    peer.repay(lease, 2)
    wait_until_run_again("spiderq", row["job"], new)


@scene
def fails():
    """What `succeeds` ends after a restart of the daemon."""
    fwp = Fwp("ended-before")
    fwp.push("restarted", retry=3)
    fwp.fail("restarted")


@scene
def succeeds():
    fwp = Fwp("ended-after")
    know("restarted")
    ask(f"/jobs/{KNOWN['restarted']['job']}/retry", "POST")
    fwp.do("restarted")


code = 1
try:
    SCENES[SCENE]()
    for queue, facts in KNOWN.items():
        print(json.dumps({"case": queue, **facts}))
    code = 0
except Exception:
    traceback.print_exc()
# Threads of the libraries do not keep the program.
sys.stdout.flush()
os._exit(code)
