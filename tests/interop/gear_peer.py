"""Drives PyPI `gear` against a daemon: a worker and a client in one process. Usage: gear_peer.py HOST PORT.

Prints one line per thing that went as it should; the Rust test compares them all.
"""
import sys
import threading
import time

import gear

HOST, PORT = sys.argv[1], int(sys.argv[2])


class Client(gear.Client):
    """A client that says what it hears, and can be waited for."""

    def __init__(self):
        super().__init__("client")
        self.heard = {}
        self.ended = threading.Condition()

    def note(self, job, what):
        with self.ended:
            self.heard.setdefault(job.unique, []).append(what)
            self.ended.notify_all()

    def handleWorkData(self, packet):
        job = super().handleWorkData(packet)
        self.note(job, "data")
        return job

    def handleWorkStatus(self, packet):
        job = super().handleWorkStatus(packet)
        self.note(job, "status %s/%s" % (job.numerator.decode(), job.denominator.decode()))
        return job

    def handleWorkComplete(self, packet):
        job = super().handleWorkComplete(packet)
        self.note(job, "complete")
        return job

    def handleWorkFail(self, packet):
        job = super().handleWorkFail(packet)
        self.note(job, "fail")
        return job

    def handleWorkException(self, packet):
        job = super().handleWorkException(packet)
        self.note(job, "exception")
        return job

    def wait_for_end(self, job):
        ends = {"complete", "fail", "exception"}
        with self.ended:
            arrived = self.ended.wait_for(lambda: ends & set(self.heard.get(job.unique, [])), timeout=60)
        assert arrived, "no end of %r: %r" % (job.unique, self.heard)
        return ",".join(self.heard[job.unique])


def work(worker, jobs):
    """Works off that many jobs, by what their arguments say."""
    for _ in range(jobs):
        job = worker.getJob()
        if job.arguments == b"fail":
            job.sendWorkFail()
        elif job.arguments == b"exception":
            job.sendWorkException(b"went wrong")
        else:
            job.sendWorkStatus(1, 2)
            job.sendWorkData(b"half of ")
            job.sendWorkComplete(b"half of " + job.arguments)


def main():
    worker = gear.Worker("worker")
    worker.addServer(HOST, PORT)
    worker.waitForServer()
    worker.registerFunction(b"halve")
    client = Client()
    client.addServer(HOST, PORT)
    client.waitForServer()
    client.setOption(b"exceptions")

    thread = threading.Thread(target=work, args=(worker, 6), daemon=True)
    thread.start()

    for arguments in (b"a cake", b"bin\x00ary \xff", b"fail", b"exception"):
        job = gear.Job(b"halve", arguments, unique=b"about " + arguments[:3])
        client.submitJob(job)
        print("foreground", arguments, client.wait_for_end(job), b"".join(job.data), job.failure)

    background = gear.TextJob("halve", "later", unique="bg")
    client.submitJob(background, background=True)
    high = gear.TextJob("halve", "first", unique="high")
    client.submitJob(high, precedence=gear.PRECEDENCE_HIGH)
    print("high", client.wait_for_end(high))
    thread.join(60)
    assert not thread.is_alive()

    connection = client.active_connections[0]
    # The last completion may still be on its way.
    for _ in range(6000):
        status = gear.StatusAdminRequest()
        connection.sendAdminRequest(status)
        if status.response.startswith(b"halve\t0\t0\t"):
            break
        time.sleep(0.01)
    print("status", status.response)
    version = gear.VersionAdminRequest()
    connection.sendAdminRequest(version)
    print("version", version.response.startswith(b"OK "))
    worker.shutdown()
    client.shutdown()


main()
