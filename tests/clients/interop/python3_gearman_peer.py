"""PyPI `python3-gearman` as a peer of the interop tests; `peers.rs` describes the lines it speaks.

It decodes every packet as UTF-8, so its bodies are text, and it has no way to ask for exceptions.

Usage: python3_gearman_peer.py HOST PORT client | python3_gearman_peer.py HOST PORT worker
"""
import sys

from python3_gearman import GearmanClient, GearmanWorker
from python3_gearman.client_handler import GearmanClientCommandHandler
from python3_gearman.constants import PRIORITY_HIGH, PRIORITY_LOW, PRIORITY_NONE

from speech import orders, say, wait_while_there

PRIORITY = {"high": PRIORITY_HIGH, "normal": PRIORITY_NONE, "low": PRIORITY_LOW}


class Handler(GearmanClientCommandHandler):
    """Prints each message when it arrives. Requests carry a tag."""

    def tag(self, handle):
        return self.handle_to_request_map[handle].tag

    def recv_job_created(self, job_handle):
        say(self.requests_awaiting_handles[0].tag, "created", job_handle)
        return super().recv_job_created(job_handle)

    def recv_work_data(self, job_handle, data):
        say(self.tag(job_handle), "data", data.encode())
        return super().recv_work_data(job_handle, data)

    def recv_work_warning(self, job_handle, data):
        say(self.tag(job_handle), "warning", data.encode())
        return super().recv_work_warning(job_handle, data)

    def recv_work_status(self, job_handle, numerator, denominator):
        say(self.tag(job_handle), "status", numerator, denominator)
        return super().recv_work_status(job_handle, numerator, denominator)

    def recv_work_complete(self, job_handle, data):
        say(self.tag(job_handle), "complete", data.encode())
        return super().recv_work_complete(job_handle, data)

    def recv_work_fail(self, job_handle):
        say(self.tag(job_handle), "fail")
        return super().recv_work_fail(job_handle)


class Client(GearmanClient):
    command_handler_class = Handler

    def request(self, tag, way, priority, function, unique, body):
        job = {
            "task": function,
            "data": bytes.fromhex(body).decode(),
            "unique": bytes.fromhex(unique).decode(),
            "priority": PRIORITY[priority],
        }
        request = self._create_request_from_dictionary(job, background=way == "background")
        request.tag = tag
        return request

    def ask(self, tag, handle):
        request = self.request(tag, "foreground", "normal", "any", "", "")
        request.job.handle = handle
        request.job.connection = self.establish_request_connection(request)
        request.state = "CREATED"
        status = self.get_job_status(request).status
        say(tag, "is", int(status["known"]), int(status["running"]), status["numerator"], status["denominator"])


def client():
    peer = Client([SERVER])
    waiting = []
    for order in orders():
        if order[0] == "submit":
            request = peer.request(*order[1:])
            peer.submit_multiple_requests([request], wait_until_complete=False)
            waiting += [] if request.background else [request]
        elif order[0] == "wait":
            peer.wait_until_jobs_completed(waiting)
            waiting = []
        elif order[0] == "ask":
            peer.ask(*order[1:])


class Exceptional(Exception):
    """A function raises this to send WORK_EXCEPTION; any other exception sends WORK_FAIL."""


class Worker(GearmanWorker):
    def on_job_exception(self, current_job, exc_info):
        if exc_info[0] is not Exceptional:
            return super().on_job_exception(current_job, exc_info)
        self.send_job_exception(current_job, str(exc_info[1]))
        return False


def worker():
    peer = Worker([SERVER])
    peer.set_client_id("interop")
    for function in (echo, note, steps, fail, hold):
        peer.register_task(function.__name__, function)
    peer.register_task("raise", raises)
    peer.work()


def echo(_, job):
    return job.data


def note(_, job):
    say("worker", "note", job.data.encode())
    return job.data


def steps(worker, job):
    worker.send_job_status(job, 1, 2)
    worker.send_job_data(job, "half of ")
    worker.send_job_warning(job, "mind the gap")
    return "whole of " + job.data


def fail(_, job):
    raise ValueError(job.data)


def raises(_, job):
    raise Exceptional("went wrong")


def hold(worker, job):
    worker.send_job_status(job, 3, 4)
    wait_while_there(job.data)
    return "let go"


SERVER = sys.argv[1] + ":" + sys.argv[2]
client() if sys.argv[3] == "client" else worker()
