"""PyPI `gear` in the fleet: clients that wait for their jobs, or workers. `speech.py` describes the orders.

Usage: gearman_peer.py producer | gearman_peer.py worker
"""
import sys

import gear

from speech import octets, serve


class Producer(gear.Client):
    """Prints each message under the name of its Gearman packet."""

    def __init__(self, say, host, port):
        super().__init__("fleet")
        self.say = say
        self.addServer(host, port)
        self.waitForServer()
        assert self.setOption(b"exceptions")

    def submit(self, queue, body, unique="", background=False):
        job = gear.Job(octets(queue), octets(body), unique=octets(unique) or None)
        self.submitJob(job, background=background)
        self.say("JOB_CREATED", job.handle)

    def ask(self, handle):
        # gear reads STATUS_RES, but has no call for GET_STATUS.
        packet = gear.Packet(gear.constants.REQ, gear.constants.GET_STATUS, octets(handle))
        self.sendPacket(packet, self.active_connections[0])

    def handleStatusRes(self, packet):
        self.say("STATUS_RES", b" ".join(packet.getArgument(n) for n in range(1, 5)))

    def handleWorkStatus(self, packet):
        super().handleWorkStatus(packet)
        self.say("WORK_STATUS", b" ".join(packet.getArgument(n) for n in (1, 2)))

    def handleWorkComplete(self, packet):
        super().handleWorkComplete(packet)
        self.say("WORK_COMPLETE", packet.getArgument(1, True))

    def handleWorkFail(self, packet):
        super().handleWorkFail(packet)
        self.say("WORK_FAIL")

    def handleWorkException(self, packet):
        super().handleWorkException(packet)
        self.say("WORK_EXCEPTION", packet.getArgument(1, True))


class Worker(gear.Worker):
    def __init__(self, say, host, port, queue, timeout_ms=0):
        super().__init__("fleet")
        self.say, self.job = say, None
        self.addServer(host, port)
        self.waitForServer()
        self.registerFunction(octets(queue), str(timeout_ms).encode() if timeout_ms else None)

    def take(self):
        self.job = self.getJob()
        self.say("job", self.job.arguments, id=self.job.handle.decode(), queue=self.job.binary_name.decode("latin-1"))

    def done(self, result):
        self.job.sendWorkComplete(octets(result))

    def fail(self, why):
        self.job.sendWorkException(octets(why)) if why else self.job.sendWorkFail()

    def progress(self, part, whole):
        self.job.sendWorkStatus(part, whole)

    def die(self):
        # Closes its socket without a goodbye, as if it were killed.
        self.shutdown()
        self.say("dead")

    def handleError(self, packet):
        self.say("ERROR", packet.getArgument(1))


serve(Producer if sys.argv[1] == "producer" else Worker)
