"""Shared by the Python peers: the line protocol that `peers.rs` describes, without anything of Gearman."""
import os
import sys
import threading
import time

_one_at_a_time = threading.Lock()


def say(*words):
    """Writes one line to the test; bytes in hexadecimal."""
    line = " ".join(word.hex() if isinstance(word, bytes) else str(word) for word in words)
    with _one_at_a_time:
        print(line, flush=True)


def orders():
    """The lines from the test, split into words."""
    for line in sys.stdin:
        yield line.rstrip("\n").split(" ")


def wait_while_there(path):
    """Waits until the test removes the file."""
    while os.path.exists(path):
        time.sleep(0.005)
