"""What the Python peers share: the line speech that `peers.rs` describes, and nothing of Gearman."""
import os
import sys
import threading
import time

_one_at_a_time = threading.Lock()


def say(*words):
    """One line to the test; bytes leave as hexadecimal."""
    line = " ".join(word.hex() if isinstance(word, bytes) else str(word) for word in words)
    with _one_at_a_time:
        print(line, flush=True)


def orders():
    """The lines the test sends, in words."""
    for line in sys.stdin:
        yield line.rstrip("\n").split(" ")


def wait_while_there(path):
    """Until the test takes the file away."""
    while os.path.exists(path):
        time.sleep(0.005)
