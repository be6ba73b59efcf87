"""PyPI `eventmq` in the fleet: clients that want a reply, or workers. `speech.py` describes the orders.

The released JobManager runs jobs in processes of its own; a worker here is its socket and its messages, so that a
test determines the outcome of a job.

Usage: eventmq_peer.py producer | eventmq_peer.py worker
"""
import json
import sys

from eventmq.client import messages
from eventmq.sender import Sender
from eventmq.utils.messages import send_emqp_message

from speech import octets, serve

VERSION = b"eMQP/1.0"


class Peer:
    def __init__(self, say, host, port):
        self.say = say
        self.sender = Sender()
        self.sender.connect(f"tcp://{host}:{port}")

    def hear(self):
        """The next message that is not a heartbeat: its command, and the frames behind its identifier."""
        while True:
            delimiter, version, command, id, *frames = self.sender.zsocket.recv_multipart()
            assert (delimiter, version) == (b"", VERSION)
            if command != b"HEARTBEAT":
                return command, id, frames


class Producer(Peer):
    def submit(self, queue, body, retry=0, timeout=0):
        job = json.loads(octets(body))
        queue = octets(queue).decode()
        messages.send_request(self.sender, job, reply_requested=True, retry_count=retry, timeout=timeout, queue=queue)
        self.accepted()

    def submit_bytes(self, id, queue, body):
        """A message that the library never sends: with an identifier of our own, and any bytes."""
        frames = [b"REQUEST", octets(id), octets(queue), b"reply-requested", octets(body)]
        self.sender.zsocket.send_multipart([b"", VERSION, *frames])
        self.accepted()

    def accepted(self):
        # Two frames fewer than a result.
        command, _, (id,) = self.hear()
        self.say("accepted", id)

    def listen(self):
        command, _, (text, of) = self.hear()
        self.say(command.decode(), text, id=of.decode())


class Worker(Peer):
    def __init__(self, say, host, port, queue):
        super().__init__(say, host, port)
        self.id = None
        send_emqp_message(self.sender, "INFORM", (json.dumps([[10, octets(queue).decode()]]), "worker"))
        command, _, _ = self.hear()
        assert command == b"ACK"

    def take(self):
        send_emqp_message(self.sender, "READY")
        command, self.id, (queue, headers, job) = self.hear()
        assert command == b"REQUEST", command
        self.say("job", job, id=self.id.decode(), queue=queue.decode("latin-1"), headers=headers.decode())

    def done(self, result):
        value = json.dumps({"value": octets(result).decode()})
        send_emqp_message(self.sender, "REPLY", (value, self.id.decode()))

    def fail(self, why):
        # An exception is a result like any other. This is the only failure that eMQP can express.
        send_emqp_message(self.sender, "REPLY", (json.dumps({"value": "TimeoutError"}), self.id.decode()))

    def die(self):
        # Closes its socket without a goodbye, as if it were killed.
        self.sender.zsocket.close(linger=0)
        self.say("dead")


serve(Producer if sys.argv[1] == "producer" else Worker)
