"""spiderq and EventMQ through pyzmq, which is libzmq, with its security mechanisms. Exits with 0 on success.

Usage: curve_peer.py SCENE KEY=VALUE…. Keys: spiderq, eventmq, subscribe (addresses), server (its public key), public, secret (the client's
pair; made anew if missing), user, password.
"""
import struct
import sys

import zmq

SCENE, GIVEN = sys.argv[1], dict(word.split("=", 1) for word in sys.argv[2:])
CONTEXT = zmq.Context()
PATIENCE_MS = 30_000
REFUSED_MS = 1_500
SCENES = {}

PING, PONG = b"\x0b", b"\x11"


def scene(function):
    SCENES[function.__name__] = function


def expect(found, wanted):
    assert found == wanted, f"{found!r}, not {wanted!r}"


def connect(kind, to, **options):
    socket = CONTEXT.socket(kind)
    socket.linger, socket.rcvtimeo = 0, PATIENCE_MS
    if "server" in GIVEN:
        public, secret = zmq.curve_keypair()
        socket.curve_serverkey = GIVEN["server"].encode()
        socket.curve_publickey = GIVEN.get("public", public.decode()).encode()
        socket.curve_secretkey = GIVEN.get("secret", secret.decode()).encode()
    if "user" in GIVEN:
        socket.plain_username, socket.plain_password = GIVEN["user"].encode(), GIVEN["password"].encode()
    for name, value in options.items():
        setattr(socket, name, value)
    socket.connect(GIVEN[to])
    return socket


def ask(socket, request):
    socket.send(request)
    return socket.recv()


def vec(data):
    return struct.pack(">I", len(data)) + data


def say(socket, *frames):
    socket.send_multipart([b"", b"eMQP/1.0", *frames])


def hear(socket):
    """The next message that is not a heartbeat."""
    while True:
        frames = socket.recv_multipart()
        expect(frames[:2], [b"", b"eMQP/1.0"])
        if frames[2] != b"HEARTBEAT":
            return frames[2:]


@scene
def spiderq():
    client = connect(zmq.REQ, "spiderq", heartbeat_ivl=50, heartbeat_timeout=20_000)
    expect(ask(client, PING), PONG)
    value = bytes(range(256)) * 8_000
    expect(ask(client, b"\x02" + vec(b"cat") + vec(value)), b"\x02")
    expect(ask(client, b"\x09" + vec(b"cat"))[-len(value):], value)
    # Some heartbeats pass, which libzmq puts in boxes, too.
    assert not client.poll(500)
    expect(ask(client, PING), PONG)
    many = connect(zmq.DEALER, "spiderq", identity=b"many")
    for number in range(500):
        many.send_multipart([str(number).encode(), b"", PING])
    for number in range(500):
        expect(many.recv_multipart(), [str(number).encode(), b"", PONG])


@scene
def eventmq():
    worker, client = connect(zmq.DEALER, "eventmq", identity=b"w"), connect(zmq.DEALER, "eventmq", identity=b"c")
    say(worker, b"INFORM", b"i", b'[[10, "q"]]', b"worker")
    expect(hear(worker)[0], b"ACK")
    for number in range(50):
        id, body = b"m%d" % number, b'["run", {"n": "' + b"x" * (number * 1_000) + b'"}]'
        say(client, b"REQUEST", id, b"q", b"reply-requested", body)
        expect(hear(client)[2:], [id])
        say(worker, b"READY", b"r")
        expect(hear(worker), [b"REQUEST", id, b"q", b"reply-requested", body])
        say(worker, b"REPLY", b"x", b'{"value": 1}', id)
        expect(hear(client)[2:], [b'{"value": 1}', id])


@scene
def publications():
    subscribers = [connect(zmq.SUB, "subscribe") for _ in range(3)]
    publisher = connect(zmq.DEALER, "eventmq")
    for subscriber in subscribers:
        subscriber.subscribe(b"news")
    # Subscriptions are on their way: until they are there, messages are missed.
    waiting = set(subscribers)
    while waiting:
        say(publisher, b"PUBLISH", b"p", b"news", b"hello")
        for subscriber in list(waiting):
            if subscriber.poll(100):
                expect(subscriber.recv_multipart(), [b"news", b"hello"])
                waiting.discard(subscriber)
    text = b"y" * 100_000
    say(publisher, b"PUBLISH", b"p", b"news", text)
    say(publisher, b"PUBLISH", b"p", b"other", b"unheard")
    say(publisher, b"PUBLISH", b"p", b"news", b"last")
    for subscriber in subscribers:
        frames = subscriber.recv_multipart()
        while frames == [b"news", b"hello"]:
            frames = subscriber.recv_multipart()
        expect(frames, [b"news", text])
        expect(subscriber.recv_multipart(), [b"news", b"last"])


@scene
def refused():
    for kind, to, message in [(zmq.REQ, "spiderq", [PING]), (zmq.DEALER, "eventmq", [b"", b"eMQP/1.0", b"STATUS", b"s"])]:
        client = connect(kind, to)
        try:
            client.send_multipart(message, flags=zmq.NOBLOCK)
        except zmq.Again:
            pass  # A client that was refused by now has nobody to send to, and would wait for ever.
        assert not client.poll(REFUSED_MS), client.recv_multipart()


SCENES[SCENE]()
