"""Sockets that a test directs: EventMQ's own client, and pyzmq for messages it never sends. `peers.rs` writes the orders.

Each line is an order, JSON: the number of a socket, an action, and arguments. Each is answered with a line.
Frames may be any bytes; they are written as the characters of Latin-1.
"""
import json
import logging
import sys

import zmq
from eventmq.client import jobs, messages
from eventmq.sender import Sender

import tasks

SOCKETS = {}
CONTEXT = zmq.Context.instance()


def order(function):
    ORDERS[function.__name__] = function
    return function


ORDERS = {}


class Stock:
    """The released programs' own socket."""

    def __init__(self, address):
        self.sender = Sender()
        self.sender.connect(address)
        self.socket = self.sender.zsocket


class Plain:
    """A socket of libzmq's."""

    def __init__(self, kind, address, **options):
        self.socket = CONTEXT.socket(kind)
        for name, value in options.items():
            setattr(self.socket, name, value)
        self.socket.connect(address)


# ---- sockets ---------------------------------------------------------------------------------------------------------


@order
def stock(number, address):
    SOCKETS[number] = Stock(address)


@order
def dealer(number, address, identity=None):
    """Without an identity, the other side assigns one."""
    options = {} if identity is None else {"routing_id": identity.encode("latin-1")}
    SOCKETS[number] = Plain(zmq.DEALER, address, **options)


@order
def sub(number, address):
    SOCKETS[number] = Plain(zmq.SUB, address)


@order
def close(number):
    SOCKETS.pop(number).socket.close()


@order
def send(number, *frames):
    SOCKETS[number].socket.send_multipart([frame.encode("latin-1") for frame in frames])


@order
def hear(number, milliseconds):
    socket = SOCKETS[number].socket
    if socket.poll(milliseconds):
        return [frame.decode("latin-1") for frame in socket.recv_multipart()]


@order
def subscribe(number, topic):
    SOCKETS[number].socket.subscribe(topic)


@order
def unsubscribe(number, topic):
    SOCKETS[number].socket.unsubscribe(topic)


# ---- messages of the stock client ------------------------------------------------------------------------------------


@order
def defer_job(number, function, options):
    return messages.defer_job(SOCKETS[number].sender, function, **options)


@order
def send_request(number, message, options):
    return messages.send_request(SOCKETS[number].sender, message, **options)


@order
def schedule(number, function, options):
    return messages.schedule(SOCKETS[number].sender, function, **options)


@order
def publish(number, topic, message):
    return messages.send_publish_request(SOCKETS[number].sender, topic, message)


@order
def delay(_, address, queue, args):
    """The decorator, which makes a socket for every call."""
    return jobs.job(tasks.note, broker_addr=address, queue=queue).delay(*args)


logging.disable(logging.CRITICAL)
for line in sys.stdin:
    number, name, *rest = json.loads(line)
    print(json.dumps(ORDERS[name](number, *rest)), flush=True)
