"""Stock clients under policies, unchanged: PyPI `gear` and Debian's `gearman`, which is libgearman (Gearman), PyPI `faktory`
(FWP), the released client and JobManager (EventMQ), and pyzmq (spiderq).

The scenes assert what no slow machine can break: no start before its time, no two jobs of a key at once, the order of a
key's jobs, and whose turn it is.

Usage: policies_peer.py PROTOCOL HOST PORT HTTP SCENE [SECONDS]
"""
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))


class Gear:
    def __init__(self, host, port):
        import gear

        self.gear, self.host, self.port = gear, host, port
        self.client = self.connected(gear.Client("policies"))

    def connected(self, peer):
        peer.addServer(self.host, self.port)
        peer.waitForServer()
        return peer

    def push(self, queue, key, value):
        body, unique = json.dumps([{"tenant": key}, value]), f"{queue}-{key}-{value}"
        self.client.submitJob(self.gear.Job(queue.encode(), body.encode(), unique=unique.encode()), background=True)
        return True

    def hire(self, queue, log, many):
        for _ in range(many):
            worker = self.connected(self.gear.Worker("policies"))
            worker.registerFunction(queue.encode())
            start(self.work, worker, log)

    def work(self, worker, log):
        while log.left():
            job = worker.getJob()
            (who, value) = json.loads(job.arguments)
            log.do(who["tenant"], value)
            job.sendWorkComplete()
            log.done()


class Faktory:
    def __init__(self, host, port):
        import faktory

        self.faktory, self.url = faktory, f"tcp://{host}:{port}"
        self.client = faktory.Client(faktory=self.url)
        self.client.connect()

    def push(self, queue, key, value):
        jid = f"{queue}-{key}-{value}-12345678"
        return self.client.queue("Do", args=[{"tenant": key}, value], queue=queue, retry=3, jid=jid)

    def hire(self, queue, log, many):
        for _ in range(many):
            worker = self.faktory.Worker(faktory=self.url, queues=[queue], concurrency=1, use_threads=True)
            start(self.work, worker, queue, log)

    def work(self, worker, queue, log):
        worker.faktory.connect(worker_id=worker.worker_id)
        while log.left():
            if job := worker.faktory.fetch([queue]):
                (who, value) = job["args"]
                log.do(who["tenant"], value)
                worker._ack(job["jid"])
                log.done()
        worker.faktory.disconnect()


class Programs:
    """Workers that are programs of their own. Each job calls this program, and ends when it has its answer."""

    # A scene may have several clients, each with workers.
    programs = []

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]

    def answer(self, log):
        while True:
            call, _ = self.listener.accept()
            start(self.do, call, log)

    def do(self, call, log):
        with call, call.makefile("rw") as lines:
            (who, value) = json.loads(lines.readline())
            log.do(who["tenant"], value)
            log.done()
            lines.write("done\n")

    def start(self, command, **environment):
        environment = {**os.environ, **environment, "PYTHONDONTWRITEBYTECODE": "1"}
        silent = subprocess.DEVNULL
        program = subprocess.Popen(
            command, env=environment, stdin=silent, stdout=silent, stderr=silent, start_new_session=True
        )
        self.programs.append(program)

    @classmethod
    def stop(cls):
        for program in cls.programs:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


class Tool(Programs):
    def __init__(self, host, port):
        super().__init__()
        self.daemon = ["-h", host, "-p", str(port)]

    def push(self, queue, key, value):
        command = ["gearman", *self.daemon, "-b", "-f", queue, "-u", f"{queue}-{key}-{value}"]
        body = json.dumps([{"tenant": key}, value])
        # It reports an error, and succeeds.
        return not subprocess.run(command, input=body.encode(), capture_output=True, check=True).stderr

    def hire(self, queue, log, many):
        start(self.answer, log)
        call = f"exec 3<>/dev/tcp/127.0.0.1/{self.port}; cat >&3; echo >&3; read -r line <&3"
        for _ in range(many):
            self.start(["gearman", *self.daemon, "-w", "-f", queue, "--", "bash", "-c", call])


class Eventmq(Programs):
    def __init__(self, host, port):
        from eventmq.client import messages
        from eventmq.sender import Sender

        super().__init__()
        self.messages, self.address, self.sender = messages, f"tcp://{host}:{port}", Sender()
        self.sender.connect(self.address)

    def push(self, queue, key, value):
        task = {"path": "tasks", "callable": "call", "args": [{"tenant": key}, value], "kwargs": {}}
        task |= {"class_args": [], "class_kwargs": {}}
        self.messages.send_request(self.sender, ["run", task], queue=queue, guarantee=True)
        assert self.sender.zsocket.poll(60_000), "no answer"
        self.sender.zsocket.recv_multipart()
        return True

    def hire(self, queue, log, many):
        start(self.answer, log)
        addresses = {f"EVENTMQ_WORKER_ADDR{name}": self.address for name in ["", "_DEFAULT", "_FAILOVER"]}
        manager = os.path.join(os.path.dirname(sys.executable), "emq-jobmanager")
        self.start(
            [sys.executable, "-W", "ignore", manager],
            **addresses,
            PYTHONPATH=os.path.join(HERE, "../interop_eventmq"),
            EVENTMQ_CONFIG_FILE="/nonexistent",
            EVENTMQ_QUEUES=json.dumps([[10, queue]]),
            EVENTMQ_CONCURRENT_JOBS=str(many),
            TASK_PORT=str(self.port),
        )


class Spiderq:
    """Its queue has one name, and its entries no keys."""

    def __init__(self, host, port):
        import zmq

        self.zmq, self.address, self.context = zmq, f"tcp://{host}:{port}", zmq.Context()
        self.client = self.connected()

    def connected(self):
        client = self.context.socket(self.zmq.REQ)
        client.connect(self.address)
        return client

    def ask(self, client, message):
        client.send(message)
        return client.recv()

    def push(self, _, key, value):
        text = json.dumps([key, value]).encode()
        length = struct.pack(">I", len(text))
        return self.ask(self.client, b"\x02" + length + text + length + text) == b"\x02"

    def hire(self, _, log, many):
        for _ in range(many):
            start(self.work, self.connected(), log)

    def work(self, client, log):
        while log.left():
            lent = self.ask(client, b"\x04" + struct.pack(">QB", 600_000, 1))
            assert lent[:1] == b"\x06", lent
            (length,) = struct.unpack(">I", lent[9:13])
            (key, value) = json.loads(lent[13 : 13 + length])
            log.do(key, value)
            assert self.ask(client, b"\x05" + lent[1:] + b"\x04") == b"\x07"
            log.done()


PEERS = {"gear": Gear, "tool": Tool, "faktory": Faktory, "eventmq": Eventmq, "spiderq": Spiderq}


def start(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()


class Log:
    """What has started and ended, in order. Each job takes so many seconds."""

    def __init__(self, many, seconds=0):
        self.changed, self.many, self.seconds, self.running, self.ended = threading.Condition(), many, seconds, {}, 0
        self.starts, self.order, self.most = [], [], {}

    def left(self):
        with self.changed:
            return self.ended < self.many

    def do(self, key, value):
        with self.changed:
            self.starts.append((key, time.monotonic()))
            self.order.append((key, value))
            self.running[key] = self.running.get(key, 0) + 1
            self.most[key] = max(self.most.get(key, 0), self.running[key])
            self.changed.notify_all()
        self.last(key)
        # Before the daemon knows: the next start of the key is later.
        with self.changed:
            self.running[key] -= 1

    def last(self, _):
        time.sleep(self.seconds)

    def done(self):
        with self.changed:
            self.ended += 1
            self.changed.notify_all()

    def wait(self):
        with self.changed:
            assert self.changed.wait_for(lambda: self.ended >= self.many, 100 + self.many), self.order

    def times(self, key):
        return [at for (other, at) in self.starts if other == key]

    def of(self, key):
        return [value for (other, value) in self.order if other == key]


def several(peer, queue, log, workers):
    peer.hire(queue, log, workers)
    log.wait()


def queue_of(peer, name):
    return "spiderq" if isinstance(peer, Spiderq) else name


# ---- scenes ----------------------------------------------------------------------------------------------------------


def rate(peer, seconds=2):
    """20 a second, 10 at once."""
    (rate, burst), queue = (20, 10), queue_of(peer, "rated")
    many = rate * seconds
    for value in range(many):
        peer.push(queue, "a", value)
    began, log = time.monotonic(), Log(many)
    several(peer, queue, log, 20 if isinstance(peer, Programs) else 3)
    times = log.times("a")
    took = times[-1] - began
    assert took >= (many - burst) / rate - 0.1, f"{many} jobs in {took} s"
    # A job needs longer to one worker than to another, which makes a window shorter than it was for the daemon.
    excess = max(times.index(at) - first - rate * (at - times[first]) for first in range(0, many, 7) for at in times[first:])
    print(f"{many} starts in {times[-1] - times[0]:.3f} s: {(many - 1) / (times[-1] - times[0]):.3f} a second", end="; ")
    print(f"at most {1 + excess:.2f} in a window beyond the rate, of {burst}")
    if seconds >= 60:
        real = (many - 1) / (times[-1] - times[0])
        assert abs(real - rate) <= rate * 0.02, f"{real} a second"
        assert 1 + excess <= burst + rate / 4, f"{1 + excess} at once"


def running(peer):
    """One job of a key at a time, in order of pushing."""
    for value in range(6):
        for key in ["a", "b"]:
            peer.push("single", key, value)
    log = Log(12, seconds=0.05)
    several(peer, "single", log, 3)
    assert log.most == {"a": 1, "b": 1}, log.most
    for key in ["a", "b"]:
        assert log.of(key) == list(range(6)), log.order


class Couples(Log):
    """A job of a key ends when another has started, but for the last."""

    def last(self, key):
        with self.changed:
            is_met = lambda: self.running[key] == 2 or len(self.of(key)) == 6
            assert self.changed.wait_for(is_met, 60), "one of them is alone"
            time.sleep(0.02)


def couples(peer):
    """Two jobs of a key at a time, and no more."""
    for value in range(6):
        for key in ["a", "b"]:
            peer.push("couples", key, value)
    log = Couples(12)
    several(peer, "couples", log, 6)
    assert log.most == {"a": 2, "b": 2}, log.most


def paced(peer):
    """10 a second of each key, one at once."""
    began = time.monotonic()
    for value in range(10):
        for key in ["a", "b"]:
            peer.push("paced", key, value)
    log = Log(20)
    several(peer, "paced", log, 4)
    for key in ["a", "b"]:
        took = log.times(key)[-1] - began
        assert took >= 9 / 10 - 0.05, f"10 jobs of {key} in {took} s"


def fair(peer):
    """A late single job waits for at most what runs."""
    whale = 8 if isinstance(peer, Programs) else 30
    for value in range(whale):
        peer.push("shared", "whale", value)
    for value in range(2):
        peer.push("shared", "minnow", value)
    log = Log(whale + 2)
    several(peer, "shared", log, 1)
    late = [place for (place, (key, _)) in enumerate(log.order) if key == "minnow"]
    assert late[0] <= 2 and late[1] <= 4, log.order


class Burst(Log):
    """Many submits come while the first job runs."""

    def __init__(self, peer, many):
        super().__init__(2)
        self.peer, self.more, self.first = peer, range(many, 2 * many), True

    def last(self, _):
        if self.first:
            self.first = False
            for value in self.more:
                self.peer.push("latest", "a", value)


def burst(peer):
    """A burst of submits is one run with the last body, and one that comes during this run is one more."""
    many = 20 if isinstance(peer, Programs) else 100
    for value in range(many):
        peer.push("latest", "a", value)
    log = Burst(peer, many)
    peer.hire("latest", log, 2)
    log.wait()
    assert log.order == [("a", many - 1), ("a", 2 * many - 1)], log.order
    log.many = 3
    # A third run would come before this one.
    peer.push("latest", "b", 0)
    if not isinstance(peer, Programs):
        peer.hire("latest", log, 1)
    log.wait()
    assert log.order[2:] == [("b", 0)], log.order


def again(peer):
    """The same submit again is the same job, also after its end."""
    for value in [1, 1, 2, 1]:
        peer.push("once", "a", value)
    log = Log(2)
    several(peer, "once", log, 1)
    for value in [2, 1, 3]:
        peer.push("once", "a", value)
    log.many = 3
    if not isinstance(peer, Programs):
        peer.hire("once", log, 1)
    log.wait()
    assert log.order == [("a", 1), ("a", 2), ("a", 3)], log.order


def stale(peer):
    """A job that no worker takes in time never runs."""
    peer.push("stale", "a", 1)
    row = f"http://{HTTP}/api/v1/queues/stale"
    while json.load(urllib.request.urlopen(row))["states"]["ready"] > 0:
        time.sleep(0.02)
    log = Log(1)
    peer.hire("stale", log, 1)
    while log.left():
        # A worker may need longer than the job has.
        peer.push("stale", "a", 2)
        time.sleep(0.1)
    assert set(log.order) == {("a", 2)}, log.order


def full(peer):
    """Three jobs of a key wait; a fourth is refused, and one of another key is not."""
    def is_pushed(key, value):
        try:
            return peer.push("full", key, value)
        except Exception as why:
            print(f"refused: {why}")
            return False

    pushed = [is_pushed(key, value) for (key, value) in [("a", 1), ("a", 2), ("a", 3), ("a", 4)]]
    assert pushed == [True, True, True, False], pushed
    peer = PEERS[PROTOCOL](HOST, int(PORT))
    assert peer.push("full", "b", 5)
    log = Log(4)
    several(peer, "full", log, 1)
    assert log.order == [("a", 1), ("a", 2), ("a", 3), ("b", 5)], log.order


SCENES = [rate, running, couples, paced, fair, burst, again, stale, full]

if __name__ == "__main__":
    PROTOCOL, HOST, PORT, HTTP, SCENE, *SECONDS = sys.argv[1:]
    peer = PEERS[PROTOCOL](HOST, int(PORT))
    try:
        next(scene for scene in SCENES if scene.__name__ == SCENE)(peer, *map(int, SECONDS))
    finally:
        Programs.stop()
    # Threads that wait for a job do not keep the program.
    sys.stdout.flush()
    os._exit(0)
