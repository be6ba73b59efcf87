"""PyPI `pyfaktory` in the fleet: producers that track their jobs, or workers. `speech.py` describes the orders.

Commands without a call in the library (TRACK, JOB, a result with ACK) go through the library's own connection.

Usage: faktory_peer.py producer | faktory_peer.py worker
"""
import json
import sys
import time
import uuid

from pyfaktory import Client, FaktroyWorkProtocolError, JobFilter, MutateOperation
from pyfaktory.util.enums import State

from speech import octets, serve


class Peer:
    def __init__(self, role, say, host, port):
        more = {} if role == "producer" else {"worker_id": uuid.uuid4().hex}
        self.say = say
        self.client = Client(faktory_url=f"tcp://{host}:{port}", role=role, **more)
        self.client.connect()

    def ask(self, line):
        """The text of the answer, or None."""
        answer = self.client._send_and_receive(line + "\r\n")
        if answer.startswith("$-1"):
            return None
        return answer.split("\r\n", 1)[1] if answer.startswith("$") else answer

    def look(self, jid):
        self.say("looked", (self.ask(f"JOB GET {jid}") or "gone").encode())


class Producer(Peer):
    def __init__(self, say, host, port):
        super().__init__("producer", say, host, port)

    def submit(self, unit):
        try:
            self.client._push(json.loads(octets(unit)))
            self.say("+OK")
        except FaktroyWorkProtocolError as error:
            self.say("refused", str(error).encode())

    def submit_text(self, unit):
        """Submits the text as it is."""
        self.say(self.ask("PUSH " + octets(unit).decode()))

    def watch(self, jid, until):
        """Waits for a state, or for this percentage, and prints the result so far."""
        while True:
            track = json.loads(self.ask(f"TRACK GET {jid}"))
            if track["state"] == until:
                job = json.loads(self.ask(f"JOB GET {jid}") or "{}")
                return self.say(until, job.get("result", "").encode())
            if track.get("percent") and f"{track['percent']}%" == until:
                return self.say(until)
            time.sleep(0.01)

    def try_again(self, jid):
        self.client.mutate(MutateOperation(cmd="requeue", target="retries", filter=JobFilter(jids=[jid], regexp=None, jobtype=None)))


class Worker(Peer):
    def __init__(self, say, host, port, queue):
        super().__init__("consumer", say, host, port)
        self.queue, self.jid = octets(queue).decode(), None

    def take(self):
        job = None
        while job is None:
            job = self.ask(f"FETCH {self.queue}")
        self.jid = json.loads(job)["jid"]
        self.say("job", job.encode(), id=self.jid)

    def take_none(self):
        self.say("job" if self.ask(f"FETCH {self.queue}") else "none")

    def has(self, jid):
        """A job that another connection has taken."""
        self.jid = jid

    def done(self, result):
        ack = {"jid": self.jid, "result": octets(result).decode()}
        assert self.ask(f"ACK {json.dumps(ack)}") == "+OK"

    def fail(self, why):
        self.client._fail(self.jid, "Burnt", octets(why).decode(), ["line 1"])

    def progress(self, part, whole):
        track = {"jid": self.jid, "percent": part * 100 // whole}
        assert self.ask(f"TRACK SET {json.dumps(track)}") == "+OK"

    def die(self):
        # Closes its socket without a goodbye, as if it were killed.
        self.client.state = State.DISCONNECTED
        self.client.sock.close()
        self.say("dead")


serve(Producer if sys.argv[1] == "producer" else Worker)
