"""The tasks of the stock JobManager. They note each call in a file, one line of JSON each."""
import json
import os
import socket
import time


def note(*args, **kwargs):
    """Notes its arguments, and returns them."""
    said = [*args, *sorted(kwargs.items())]
    # A single write, so that lines of other processes cannot interleave.
    notes = os.open(os.environ["TASK_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(notes, (json.dumps(said) + "\n").encode())
    os.close(notes)
    return said


def nothing():
    pass


def fail(why):
    note(why)
    raise ValueError(why)


def slow(name, secs):
    note(name)
    time.sleep(secs)
    return "in the end"


def hold(name, path):
    """Waits until the file is gone."""
    note(name)
    while os.path.exists(path):
        time.sleep(0.005)
    return note(name, "let go")


def call(*args):
    """Calls the program that listens for it, and ends when it has an answer."""
    with socket.create_connection(("127.0.0.1", int(os.environ["TASK_PORT"]))) as call, call.makefile("rw") as lines:
        lines.write(json.dumps(args) + "\n")
        lines.flush()
        return lines.readline()


class Greeter:
    def __init__(self, greeting, mark="."):
        self.greeting, self.mark = greeting, mark

    def greet(self, name):
        return note(f"{self.greeting}, {name}{self.mark}")
