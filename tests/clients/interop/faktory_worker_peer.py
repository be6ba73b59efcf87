"""PyPI `faktory`: its client, and its worker until the server ends it. Exits with 0 on success.

Usage: faktory_worker_peer.py tcp[+tls]://[:PASSWORD@]HOST:PORT work|refused
"""
import json
import ssl
import sys
import threading
import time

import faktory
from faktory._proto import Connection

URL, SCENE = sys.argv[1:]
PATIENCE = 30

if not hasattr(ssl, "wrap_socket"):
    # Python 3.12 has removed it, but the client still uses it.
    def wrap_socket(sock):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context.wrap_socket(sock)

    ssl.wrap_socket = wrap_socket


def ask(command, data=None):
    """Sends one command over a connection of its own, and returns the answer."""
    connection = Connection(URL)
    connection.connect()
    connection.reply(command, data)
    answer = next(connection.get_message())
    connection.disconnect()
    return answer


def info():
    return json.loads(ask("INFO"))["faktory"]


def expect(found, wanted):
    assert found == wanted, f"{found!r}, not {wanted!r}"


def work():
    with faktory.connection(URL) as client:
        for args in ([1], ["fail"], [[None, 12345678901234567890]]):
            assert client.queue("t", args=args, queue="q", priority=5, retry=3, reserve_for=60, backtrace=5)
        assert client.queue("nobody knows", queue="q", retry=0)
        assert client.queue("t", args=["later"], queue="q", at="2100-01-01T00:00:00Z")
    expect(info()["queues"], {"q": 4})

    done = []

    def task(jid, argument):
        if argument == "fail":
            raise ValueError("no luck")
        done.append(argument)

    worker = faktory.Worker(URL, queues=["q"], concurrency=2, use_threads=True)
    worker.send_heartbeat_every = 0
    worker.register("t", task, bind=True)

    def end_when_done():
        end = time.monotonic() + PATIENCE
        while info()["total_processed"] < 4 and time.monotonic() < end:
            time.sleep(0.01)
        ask("BEAT", {"wid": worker.worker_id, "current_state": "terminate"})

    threading.Thread(target=end_when_done).start()
    try:
        worker.run()
    except SystemExit:
        pass
    assert worker.is_disconnecting, "it ended without being told"
    expect(sorted(done, key=str), sorted([1, [None, 12345678901234567890]], key=str))
    found = info()
    expect((found["total_processed"], found["total_failures"]), (4, 2))
    sizes = {name: found["tasks"][name]["size"] for name in ("Scheduled", "Retries", "Dead", "Workers")}
    expect(sizes, {"Scheduled": 1, "Retries": 1, "Dead": 0, "Workers": 0})


def refused():
    connection = Connection(URL.replace("open", "close"))
    try:
        connection.connect()
    except faktory.FaktoryAuthenticationError:
        pass
    else:
        raise AssertionError("let in with a wrong password")


{"work": work, "refused": refused}[SCENE]()
