"""Stock clients under policies: PyPI `gear` (Gearman) and PyPI `faktory` (FWP), unchanged.

The scenes assert what no slow machine can break: no start before its time, no two jobs of a key at once, the order of a
key's jobs, and whose turn it is.

Usage: policies_peer.py gearman|faktory HOST PORT SCENE
"""
import json
import os
import sys
import threading
import time

import gear
from faktory import Worker as FwpWorker
from faktory import Client as FwpClient


class Gearman:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def push(self, queue, key, value):
        body = json.dumps([{"tenant": key}, value])
        client = gear.Client("policies")
        client.addServer(self.host, self.port)
        client.waitForServer()
        client.submitJob(gear.Job(queue.encode(), body.encode(), unique=f"{queue}-{key}-{value}".encode()), background=True)
        client.shutdown()

    def hire(self, queue):
        worker = gear.Worker("policies")
        worker.addServer(self.host, self.port)
        worker.waitForServer()
        worker.registerFunction(queue.encode())
        return worker

    def work(self, worker, queue, log):
        while log.left():
            job = worker.getJob()
            (who, value) = json.loads(job.arguments)
            log.do(who["tenant"], value)
            job.sendWorkComplete()
            log.done()


class Faktory:
    def __init__(self, host, port):
        self.url = f"tcp://{host}:{port}"

    def push(self, queue, key, value):
        with_client = FwpClient(faktory=self.url)
        with_client.connect()
        with_client.queue("Do", args=[{"tenant": key}, value], queue=queue, retry=3)
        with_client.disconnect()

    def hire(self, queue):
        return FwpWorker(faktory=self.url, queues=[queue], concurrency=1, use_threads=True)

    def work(self, worker, queue, log):
        worker.faktory.connect(worker_id=worker.worker_id)
        while log.left():
            if job := worker.faktory.fetch([queue]):
                (who, value) = job["args"]
                log.do(who["tenant"], value)
                worker._ack(job["jid"])
                log.done()
        worker.faktory.disconnect()


class Log:
    """What has started and ended, in order. Each job takes so many seconds."""

    def __init__(self, many, seconds=0):
        self.lock, self.many, self.seconds, self.running, self.ended = threading.Lock(), many, seconds, {}, 0
        self.starts, self.order, self.overlaps = [], [], []

    def left(self):
        with self.lock:
            return self.ended < self.many

    def do(self, key, value):
        with self.lock:
            self.starts.append(time.monotonic())
            self.order.append((key, value))
            if self.running.get(key):
                self.overlaps.append((key, value))
            self.running[key] = self.running.get(key, 0) + 1
        time.sleep(self.seconds)
        # Before the daemon knows: the next start of the key is later.
        with self.lock:
            self.running[key] -= 1

    def done(self):
        with self.lock:
            self.ended += 1


def several(peer, queue, log, workers):
    for hand in [peer.hire(queue) for _ in range(workers)]:
        threading.Thread(target=peer.work, args=(hand, queue, log), daemon=True).start()
    while log.left():
        time.sleep(0.01)


def rate(peer):
    """20 a second, 2 at once."""
    for value in range(40):
        peer.push("rated", "a", value)
    began, log = time.monotonic(), Log(40)
    several(peer, "rated", log, 3)
    took = log.starts[-1] - began
    assert took >= (40 - 2) / 20 - 0.1, f"40 jobs in {took} s"


def running(peer):
    """One job of a key at a time, in order of pushing."""
    for value in range(6):
        for key in ["a", "b"]:
            peer.push("single", key, value)
    log = Log(12, seconds=0.05)
    several(peer, "single", log, 3)
    assert not log.overlaps, log.overlaps
    for key in ["a", "b"]:
        assert [value for (other, value) in log.order if other == key] == list(range(6)), log.order


def fair(peer):
    """A late single job waits for at most what runs."""
    for value in range(30):
        peer.push("shared", "whale", value)
    for value in range(2):
        peer.push("shared", "minnow", value)
    log = Log(32)
    several(peer, "shared", log, 1)
    late = [place for (place, (key, _)) in enumerate(log.order) if key == "minnow"]
    assert late[0] <= 2 and late[1] <= 4, log.order


class Burst(Log):
    """A hundred submits come while the first job runs."""

    def __init__(self, peer):
        super().__init__(2)
        self.peer = peer

    def do(self, key, value):
        if not self.starts:
            for more in range(100, 200):
                self.peer.push("latest", "a", more)
        super().do(key, value)


def burst(peer):
    """A burst of submits is one run with the last body, and one that comes during this run is one more."""
    for value in range(100):
        peer.push("latest", "a", value)
    log = Burst(peer)
    several(peer, "latest", log, 1)
    assert log.order == [("a", 99), ("a", 199)], log.order
    # A third run would come before this one.
    peer.push("latest", "b", 0)
    log = Log(1)
    several(peer, "latest", log, 1)
    assert log.order == [("b", 0)], log.order


if __name__ == "__main__":
    protocol, host, port, scene = sys.argv[1:]
    peer = {"gearman": Gearman, "faktory": Faktory}[protocol](host, int(port))
    {"rate": rate, "running": running, "fair": fair, "burst": burst}[scene](peer)
    # Threads that wait for a job do not keep the program.
    sys.stdout.flush()
    os._exit(0)
