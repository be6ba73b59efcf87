"""PyPI `gear` as a peer of the interop tests; `peers.rs` describes the lines it speaks.

Usage: gear_peer.py HOST PORT client [exceptions] | gear_peer.py HOST PORT worker
"""
import sys

import gear

from speech import orders, say, wait_while_there

PRECEDENCE = {"high": gear.PRECEDENCE_HIGH, "normal": gear.PRECEDENCE_NORMAL, "low": gear.PRECEDENCE_LOW}


class Client(gear.Client):
    """Prints each message. gear's handlers return the job concerned; ours carry a tag."""

    def __init__(self):
        super().__init__("interop")
        self.questions = {}

    def handleJobCreated(self, packet):
        # gear wakes the submitter in this call; later packets arrive only after it.
        say(packet.connection.pending_tasks[0].job.tag, "created", packet.data.decode())
        return super().handleJobCreated(packet)

    def handleWorkData(self, packet):
        say(super().handleWorkData(packet).tag, "data", packet.getArgument(1, True))

    def handleWorkWarning(self, packet):
        say(super().handleWorkWarning(packet).tag, "warning", packet.getArgument(1, True))

    def handleWorkStatus(self, packet):
        job = super().handleWorkStatus(packet)
        say(job.tag, "status", job.numerator.decode(), job.denominator.decode())

    def handleWorkComplete(self, packet):
        say(super().handleWorkComplete(packet).tag, "complete", packet.getArgument(1, True))

    def handleWorkFail(self, packet):
        say(super().handleWorkFail(packet).tag, "fail")

    def handleWorkException(self, packet):
        job = super().handleWorkException(packet)
        say(job.tag, "exception", job.exception)

    def ask(self, tag, handle):
        # gear reads STATUS_RES, but has no call for GET_STATUS, and reads only statuses of jobs it waits for.
        handle = handle.encode()
        self.questions[handle] = tag
        self.sendPacket(gear.Packet(gear.constants.REQ, gear.constants.GET_STATUS, handle), self.active_connections[0])

    def handleStatusRes(self, packet):
        tag = self.questions.pop(packet.getArgument(0))
        say(tag, "is", *(packet.getArgument(n).decode() for n in range(1, 5)))


def client(exceptions):
    peer = Client()
    peer.addServer(HOST, PORT)
    peer.waitForServer()
    if exceptions:
        assert peer.setOption(b"exceptions")
    for order in orders():
        if order[0] == "submit":
            _, tag, way, priority, function, unique, body = order
            job = gear.Job(function.encode(), bytes.fromhex(body), unique=bytes.fromhex(unique) or None)
            job.tag = tag
            peer.submitJob(job, background=way == "background", precedence=PRECEDENCE[priority])
        elif order[0] == "ask":
            peer.ask(*order[1:])
        elif order[0] == "admin":
            say("admin", "answer", administer(peer, *order[1:]))
    peer.shutdown()


ADMIN = {
    "version": gear.VersionAdminRequest,
    "functions": gear.StatusAdminRequest,
    "workers": gear.WorkersAdminRequest,
    "jobs": gear.ShowJobsAdminRequest,
    "uniques": gear.ShowUniqueJobsAdminRequest,
    "cancel": gear.CancelJobAdminRequest,
}


def administer(peer, what, *handle):
    # Over the same connection that waits for jobs.
    request = ADMIN[what](*handle)
    peer.active_connections[0].sendAdminRequest(request)
    lines = request.response.replace(b"\t", b" ").splitlines()
    return b"\n".join(line for line in lines if line != b".")


def worker():
    peer = gear.Worker("interop")
    peer.addServer(HOST, PORT)
    peer.waitForServer()
    for function in ("echo", "note", "steps", "fail", "raise", "hold"):
        peer.registerFunction(function.encode())
    while True:
        job = peer.getJob()
        work(job, job.arguments)


def work(job, body):
    if job.name == "fail":
        return job.sendWorkFail()
    if job.name == "raise":
        return job.sendWorkException(b"went wrong")
    if job.name == "note":
        say("worker", "note", body)
    if job.name == "steps":
        job.sendWorkStatus(1, 2)
        job.sendWorkData(b"half of ")
        job.sendWorkWarning(b"mind the gap")
        body = b"whole of " + body
    if job.name == "hold":
        job.sendWorkStatus(3, 4)
        wait_while_there(body)
        body = b"let go"
    job.sendWorkComplete(body)


HOST, PORT = sys.argv[1], int(sys.argv[2])
client("exceptions" in sys.argv) if sys.argv[3] == "client" else worker()
