"""Shared by the peers: orders in, messages out. Independent of the protocols.

Every line is JSON. `{"of": N, "do": ORDER, …}` is an order to connection N, which exists from its first order `connect` on and
has a thread of its own. `{"of": N, "say": WORD, "text": …}` is a message from it. Bytes are written as the characters of Latin-1.
"""
import json
import logging
import queue
import sys
import threading
import traceback

_one_at_a_time = threading.Lock()


def serve(kind):
    """Processes orders until the input ends, for connections of this kind."""
    logging.disable(logging.CRITICAL)
    threads = {}
    for line in sys.stdin:
        order = json.loads(line)
        number, what = order.pop("of"), order.pop("do")
        if what == "connect":
            threads[number] = queue.Queue()
            threading.Thread(target=_live, args=(kind, number, threads[number]), daemon=True).start()
        threads[number].put((what, order))


def _live(kind, number, orders):
    def say(word, text=b"", **more):
        text = text if isinstance(text, str) else text.decode("latin-1")
        with _one_at_a_time:
            print(json.dumps({"of": number, "say": word, "text": text, **more}), flush=True)

    peer = None
    while True:
        what, order = orders.get()
        try:
            if what == "connect":
                peer = kind(say, **order)
            else:
                getattr(peer, what)(**order)
        except Exception:
            say("error", traceback.format_exc())


def octets(text):
    """Decodes bytes in an order."""
    return text.encode("latin-1")
