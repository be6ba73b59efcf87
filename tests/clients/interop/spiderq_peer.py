"""spiderq through pyzmq, which is libzmq: every request, on a daemon of its own. Exits with 0 on success.

Usage: spiderq_peer.py ADDRESS DIALECT SCENE [USER PASSWORD]. ADDRESS is in libzmq's notation, DIALECT is 1.3 or 1.4.
"""
import struct
import sys
import time
from contextlib import contextmanager

import zmq
from zmq.utils.monitor import recv_monitor_message

ADDRESS, DIALECT, SCENE = sys.argv[1:4]
LOGIN = [text.encode() for text in sys.argv[4:6]]
NEW = DIALECT == "1.4"
CONTEXT = zmq.Context()
PATIENCE_MS = 30_000
FOREVER_MS = 600_000
SCENES = {}

BLOCK, POLL = 1, 2
PENALTY, REWARD, FRONT, DROP = 1, 2, 3, 4
HEAD, TAIL = 1, 2

COUNT, STATS, TERMINATE, FLUSH, PING = b"\x01", b"\x07", b"\x08", b"\x0a", b"\x0b"
ADDED, KEPT, UPDATED, NOT_FOUND, REPAID = b"\x02", b"\x03", b"\x04", b"\x05", b"\x07"
HEARTBEATEN, SKIPPED, TERMINATED, NO_VALUE = b"\x08", b"\x09", b"\x0c", b"\x0e"
FLUSHED, EMPTY, PONG, REMOVED, NOT_REMOVED = b"\x0f", b"\x10", b"\x11", b"\x12", b"\x13"


def scene(function):
    SCENES[function.__name__] = function


def expect(found, wanted):
    assert found == wanted, f"{found!r}, not {wanted!r}"


# ---- messages --------------------------------------------------------------------------------------------------------


def vec(data):
    return struct.pack(">I", len(data)) + data


def add(key, value=b"value", mode=TAIL):
    return b"\x02" + vec(key) + vec(value) + (bytes([mode]) if NEW else b"")


def update(key, value):
    return b"\x03" + vec(key) + vec(value)


def lend(ms=FOREVER_MS, mode=POLL):
    return b"\x04" + struct.pack(">QB", ms, mode)


def repay(lease, status, value=None):
    lend_key, key, old = lease
    return b"\x05" + struct.pack(">Q", lend_key) + vec(key) + vec(old if value is None else value) + bytes([status])


def heartbeat(lease, ms):
    return b"\x06" + struct.pack(">Q", lease[0]) + vec(lease[1]) + struct.pack(">Q", ms)


def lookup(key):
    return b"\x09" + vec(key)


def remove(key):
    return b"\x0c" + vec(key)


def number(reply):
    expect(reply[:1], b"\x01")
    (count,) = struct.unpack(">I", reply[1:])
    return count


def lent(reply):
    """The lend key, the key and the value."""
    expect(reply[:1], b"\x06")
    (lend_key,) = struct.unpack_from(">Q", reply, 1)
    parts, at = [], 9
    for _ in range(2):
        (length,) = struct.unpack_from(">I", reply, at)
        parts.append(reply[at + 4 : at + 4 + length])
        at += 4 + length
    expect(at, len(reply))
    return lend_key, *parts


class Peer:
    def __init__(self, kind=zmq.REQ, **options):
        self.kind = kind
        self.socket = CONTEXT.socket(kind)
        self.socket.linger = 0
        self.socket.rcvtimeo = self.socket.sndtimeo = PATIENCE_MS
        if LOGIN:
            self.socket.plain_username, self.socket.plain_password = LOGIN
        for name, value in options.items():
            setattr(self.socket, name, value)
        self.socket.connect(ADDRESS)

    def say(self, request):
        self.socket.send_multipart([request] if self.kind == zmq.REQ else [b"", request])

    def hear(self):
        return self.socket.recv_multipart()[-1]

    def ask(self, request):
        self.say(request)
        return self.hear()

    def lease(self, ms=FOREVER_MS, mode=POLL):
        return lent(self.ask(lend(ms, mode)))

    def is_silent(self, ms=100):
        return self.socket.poll(ms) == 0

    def close(self):
        self.socket.close()


@contextmanager
def peers(count=1, kind=zmq.REQ, **options):
    made = [Peer(kind, **options) for _ in range(count)]
    try:
        yield made[0] if count == 1 else made
    finally:
        for peer in made:
            peer.close()


def fill(peer, keys):
    for key in keys:
        expect(peer.ask(add(key)), ADDED)


def empty(peer):
    """Takes all entries, and returns their keys in order."""
    keys = []
    while (reply := peer.ask(lend()))[:1] == b"\x06":
        lease = lent(reply)
        keys.append(lease[1])
        expect(peer.ask(repay(lease, DROP)), REPAID)
    expect(reply, EMPTY)
    return keys


# ---- scenes ----------------------------------------------------------------------------------------------------------


@scene
def a_life():
    """One entry through all its states."""
    with peers() as peer:
        expect(peer.ask(PING), PONG)
        expect(number(peer.ask(COUNT)), 0)
        expect(peer.ask(lend()), EMPTY)
        expect(peer.ask(add(b"cat", b"small")), ADDED)
        expect(peer.ask(add(b"cat", b"other")), KEPT)
        expect(number(peer.ask(COUNT)), 1)
        expect(peer.ask(lookup(b"cat")), b"\x0d" + vec(b"small"))
        expect(peer.ask(update(b"cat", b"big")), UPDATED)
        lease = peer.lease()
        expect(lease[1:], (b"cat", b"big"))
        expect(number(peer.ask(COUNT)), 0)
        expect(peer.ask(heartbeat(lease, 2000)), HEARTBEATEN)
        expect(peer.ask(repay(lease, PENALTY, b"huge")), REPAID)
        expect(peer.ask(repay(lease, PENALTY)), NOT_FOUND)
        expect(peer.ask(heartbeat(lease, 2000)), SKIPPED)
        lease = peer.lease()
        expect(lease[1:], (b"cat", b"huge"))
        expect(peer.ask(repay(lease, DROP, b"last")), REPAID)
        expect(number(peer.ask(COUNT)), 0)
        # A dropped entry is still known, but does not return.
        expect(peer.ask(lookup(b"cat")), b"\x0d" + vec(b"last"))
        expect(peer.ask(add(b"cat")), KEPT)
        expect(peer.ask(lend()), EMPTY)
        expect(peer.ask(lookup(b"dog")), NO_VALUE)
        expect(peer.ask(update(b"dog", b"")), NOT_FOUND)
        expect(peer.ask(FLUSH), FLUSHED)


@scene
def bytes_of_any_kind():
    with peers() as peer:
        for key, value in ((b"", b""), (b"\0\xff", b"\xfe\0"), (b"large", bytes(3_000_000)), (b"k" * 8000, b"v")):
            expect(peer.ask(add(key, value)), ADDED)
            expect(peer.ask(lookup(key)), b"\x0d" + vec(value))
            lease = peer.lease()
            expect(lease[1:], (key, value))
            expect(peer.ask(repay(lease, DROP)), REPAID)


@scene
def faults():
    """A truncated request is answered with the missing part."""
    def missing(code, required, given):
        return b"\x0b" + struct.pack(">BII", code, required, given)

    table = [
        (b"", missing(1, 1, 0)),
        (b"\x00", b"\x0b\x02\x00"),
        (b"\xfe", b"\x0b\x02\xfe"),
        (b"\x02", missing(3, 4, 0)),
        (b"\x02" + vec(b"abc")[:-1], missing(4, 3, 2)),
        (b"\x02" + vec(b"abc") + b"\0", missing(5, 4, 1)),
        (b"\x02" + vec(b"abc") + vec(b"abc")[:-3], missing(6, 3, 0)),
        (b"\x03\0", missing(39, 4, 1)),
        (b"\x03" + vec(b"abc")[:-2], missing(40, 3, 1)),
        (b"\x03" + vec(b"abc"), missing(41, 4, 0)),
        (b"\x03" + vec(b"abc") + vec(b"x" * 300)[:-1], missing(42, 300, 299)),
        (b"\x04" + bytes(7), missing(7, 8, 7)),
        (b"\x04" + bytes(8), missing(51, 1, 0)),
        (b"\x04" + bytes(8) + b"\x03", b"\x0b\x34\x03"),
        (b"\x05" + bytes(3), missing(8, 8, 3)),
        (b"\x05" + bytes(8), missing(9, 4, 0)),
        (b"\x05" + bytes(8) + vec(b"ab")[:-1], missing(10, 2, 1)),
        (b"\x05" + bytes(8) + vec(b"ab"), missing(11, 4, 0)),
        (b"\x05" + bytes(8) + vec(b"ab") + vec(b"cd")[:-1], missing(12, 2, 1)),
        (b"\x05" + bytes(8) + vec(b"ab") + vec(b"cd"), missing(13, 1, 0)),
        (b"\x05" + bytes(8) + vec(b"ab") + vec(b"cd") + b"\x05", b"\x0b\x0e\x05"),
        (b"\x06" + bytes(7), missing(43, 8, 7)),
        (b"\x06" + bytes(8), missing(44, 4, 0)),
        (b"\x06" + bytes(8) + vec(b"ab")[:-2], missing(45, 2, 0)),
        (b"\x06" + bytes(8) + vec(b"ab") + b"\0", missing(46, 8, 1)),
        (b"\x09", missing(47, 4, 0)),
        (b"\x09" + vec(b"ab")[:-1], missing(48, 2, 1)),
        # Bytes behind a request are ignored.
        (PING + b"and more", PONG),
    ]
    if NEW:
        table += [
            (b"\x02" + vec(b"a") + vec(b"b"), missing(53, 1, 0)),
            (b"\x02" + vec(b"a") + vec(b"b") + b"\x03", b"\x0b\x36\x03"),
            (b"\x0c\0\0", missing(57, 4, 2)),
            (b"\x0c" + vec(b"ab")[:-1], missing(58, 2, 1)),
        ]
    with peers() as peer:
        # A client that gives a mode once must always give it.
        expect(peer.ask(add(b"x")), ADDED)
        expect(peer.ask(remove(b"x")), REMOVED)
        for request, wanted in table:
            found = peer.ask(request)
            assert found == wanted, f"{request.hex()}: {found.hex()}, not {wanted.hex()}"
        expect(number(peer.ask(COUNT)), 0)


@scene
def places():
    """The place of repaid entries."""
    with peers() as peer:
        keys = [b"%d" % number for number in range(8)]
        fill(peer, keys)
        held = [peer.lease() for _ in range(4)]
        expect([lease[1] for lease in held], keys[:4])
        # The head is 4, the tail 7: a reward puts it half way between them, a penalty behind the tail.
        expect(peer.ask(repay(held[0], REWARD)), REPAID)
        expect(peer.ask(repay(held[1], PENALTY)), REPAID)
        expect(peer.ask(repay(held[2], FRONT)), REPAID)
        expect(peer.ask(repay(held[3], DROP)), REPAID)
        order = empty(peer)
        expect([key for key in order if key != b"0"], [b"2", b"4", b"5", b"6", b"7", b"1"])
        assert 2 <= order.index(b"0") <= 4, order


@scene
def rewards_add_up():
    with peers() as peer:
        fill(peer, [b"%03d" % number for number in range(100)])
        favourite = peer.lease()
        steps = []
        for _ in range(6):
            expect(peer.ask(repay(favourite, REWARD)), REPAID)
            held = []
            while (lease := peer.lease())[1] != favourite[1]:
                held.append(lease)
            favourite = lease
            for lease in held:
                expect(peer.ask(repay(lease, PENALTY)), REPAID)
            steps.append(len(held))
        # Half the way, a quarter, an eighth.
        assert steps == sorted(steps, reverse=True) and 40 <= steps[0] <= 60 and steps[-1] <= 3, steps


@scene
def leases_end():
    with peers(2) as (peer, other):
        fill(peer, [b"a", b"b"])
        began = time.monotonic()
        first = peer.lease(ms=300)
        expect(peer.ask(update(b"a", b"changed")), UPDATED)
        # Back to the front, with its new value; its previous holder has lost the lease.
        held = peer.lease()
        expect(held[1], b"b")
        again = other.lease(mode=BLOCK)
        assert time.monotonic() - began >= 0.295
        expect(again[1:], (b"a", b"changed"))
        assert again[0] != first[0]
        expect(peer.ask(repay(first, DROP)), NOT_FOUND)
        expect(peer.ask(heartbeat(first, 1)), SKIPPED)
        # A heartbeat moves the end, either way.
        began = time.monotonic()
        expect(peer.ask(heartbeat(again, 500)), HEARTBEATEN)
        expect(other.lease(mode=BLOCK)[1], b"a")
        assert time.monotonic() - began >= 0.495
        expect(peer.ask(heartbeat(held, 0)), HEARTBEATEN)
        expect(other.lease(mode=BLOCK)[1], b"b")


@scene
def times_that_are_hardly_any():
    """A time of zero, and more than a clock can count."""
    with peers(2) as (peer, other):
        fill(peer, [b"a"])
        expect(peer.lease(ms=0)[1], b"a")
        for ms in (2**63, 2**64 - 1):
            lease = other.lease(ms=ms, mode=BLOCK)
            expect(peer.ask(lend()), EMPTY)
            expect(peer.ask(heartbeat(lease, ms)), HEARTBEATEN)
            expect(peer.ask(lend()), EMPTY)
            expect(peer.ask(repay(lease, FRONT)), REPAID)


@scene
def those_who_wait():
    """Waiters are served in order, and each times out on its own."""
    with peers() as peer, peers(3) as waiting:
        for waiter in waiting:
            waiter.say(lend(200, BLOCK))
            assert waiter.is_silent(), "there is nothing to be had"
        began = time.monotonic()
        expect(peer.ask(add(b"one")), ADDED)
        for turn, waiter in enumerate(waiting):
            expect(lent(waiter.hear())[1], b"one")
            assert time.monotonic() - began >= turn * 0.2 - 0.005
        expect(peer.lease(mode=BLOCK)[1], b"one")


@scene
def those_who_leave():
    """Nothing is lent to a waiter that has gone."""
    with peers() as peer:
        with peers() as waiter:
            waiter.say(lend(FOREVER_MS, BLOCK))
            assert waiter.is_silent()
        # The daemon may not have noticed the end of its connection yet: this asks until it has.
        for attempt in range(100):
            key = b"%d" % attempt
            expect(peer.ask(add(key)), ADDED)
            reply = peer.ask(lend())
            if reply != EMPTY:
                return expect(lent(reply)[1], key)
        raise AssertionError("it still waits")


@scene
def envelopes():
    with peers(kind=zmq.DEALER) as peer:
        for parts in ([PING], [b"", PING], [b"a", b"", b"\0b", PING], [b"x" * 300, PING], [b""] * 30 + [PING]):
            peer.socket.send_multipart(parts)
            expect(peer.socket.recv_multipart(), parts[:-1] + [PONG])
        peer.socket.send_multipart([b"a", b""])
        expect(peer.socket.recv_multipart(), [b"a", b"\x0b" + struct.pack(">BII", 1, 1, 0)])


@scene
def many_at_once():
    """Pipelined requests are answered in order."""
    with peers(4, kind=zmq.DEALER) as made:
        for name, peer in enumerate(made):
            for turn in range(500):
                peer.say(add(b"%d-%d" % (name, turn), b"%d" % turn))
                peer.say(lookup(b"%d-%d" % (name, turn)))
                peer.say(PING)
        for peer in made:
            for turn in range(500):
                expect([peer.hear() for _ in range(3)], [ADDED, b"\x0d" + vec(b"%d" % turn), PONG])
        expect(number(made[0].ask(COUNT)), 2000)


@scene
def stats():
    """Every reply is counted, faults are not."""
    with peers() as peer:
        def counters():
            reply = peer.ask(STATS)
            expect(reply[:1], b"\x0a")
            return list(struct.unpack(f">{len(reply) // 8}Q", reply[1:]))

        fill(peer, [b"a"])
        expect(peer.ask(add(b"a")), KEPT)
        expect(peer.ask(b"\x02"), b"\x0b" + struct.pack(">BII", 3, 4, 0))
        peer.ask(PING), peer.ask(COUNT), peer.ask(FLUSH)
        for key in (b"a", b"b"):
            peer.ask(update(key, b"")), peer.ask(lookup(key))
        lease = peer.lease()
        expect(peer.ask(lend()), EMPTY)
        for _ in range(2):
            peer.ask(heartbeat(lease, 1000)), peer.ask(heartbeat((0, b"a"), 1000))
            peer.ask(repay(lease, DROP))
        if NEW:
            expect(peer.ask(remove(b"a")), REMOVED)
            expect(peer.ask(remove(b"a")), NOT_REMOVED)
        wanted = dict(ping=1, count=1, add=2, update=2, lookup=2, remove=2, lend=2, repay=2, heartbeat=4, stats=1)
        if not NEW:
            del wanted["ping"], wanted["remove"]
        expect(counters(), list(wanted.values()))
        wanted["stats"] += 1
        expect(counters(), list(wanted.values()))


@scene
def removal():
    if not NEW:
        return
    with peers() as peer:
        fill(peer, [b"a", b"b"])
        expect(peer.ask(remove(b"a")), REMOVED)
        expect(peer.ask(remove(b"a")), NOT_REMOVED)
        expect(peer.ask(lookup(b"a")), NO_VALUE)
        expect(number(peer.ask(COUNT)), 1)
        lease = peer.lease()
        expect(peer.ask(remove(b"b")), REMOVED)
        expect(peer.ask(repay(lease, FRONT)), NOT_FOUND)
        expect(peer.ask(heartbeat(lease, 1000)), SKIPPED)
        # Added again, it is a new entry, and exists once.
        fill(peer, [b"b", b"a"])
        expect(peer.ask(remove(b"b")), REMOVED)
        fill(peer, [b"b"])
        expect(peer.ask(add(b"first", b"", HEAD)), ADDED)
        expect(peer.ask(add(b"second", b"", HEAD)), ADDED)
        expect(empty(peer), [b"first", b"second", b"a", b"b"])
        # A dropped entry can return this way.
        expect(peer.ask(remove(b"a")), REMOVED)
        fill(peer, [b"a"])
        expect(empty(peer), [b"a"])


@scene
def terminate_is_for_those_who_may():
    with peers() as peer:
        expect(peer.ask(TERMINATE), b"\x0b\x02\x08")
        expect(peer.ask(PING), PONG)


@scene
def terminate():
    with peers() as peer:
        expect(peer.ask(TERMINATE), TERMINATED)


@scene
def heartbeats():
    """A client with heartbeats on stays connected, while idle and while much waits to be read."""
    # The client would close the connection after its timeout without data; the daemon would close it after the ttl.
    options = dict(heartbeat_ivl=50, heartbeat_timeout=PATIENCE_MS, heartbeat_ttl=300)
    with peers(kind=zmq.DEALER, rcvhwm=1, **options) as peer:
        events = peer.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED)
        expect(peer.ask(PING), PONG)
        expect(events.poll(1500), 0)
        value = bytes(100_000)
        expect(peer.ask(add(b"a", value)), ADDED)
        for _ in range(100):
            peer.say(lookup(b"a"))
        if events.poll(1500):
            raise AssertionError(recv_monitor_message(events))
        for _ in range(100):
            expect(peer.hear(), b"\x0d" + vec(value))
        expect(events.poll(0), 0)
        peer.socket.disable_monitor()


@scene
def handover():
    """Of two peers with the same identity, the newer is served."""
    with peers(routing_id=b"worker", reconnect_ivl=-1) as old:
        expect(old.ask(PING), PONG)
        old.say(lend(FOREVER_MS, BLOCK))
        assert old.is_silent()
        with peers(routing_id=b"worker", reconnect_ivl=-1) as new, peers() as other:
            expect(new.ask(PING), PONG)
            expect(other.ask(add(b"a")), ADDED)
            # The old one no longer waits: its connection has ended.
            expect(new.lease(mode=BLOCK)[1], b"a")
            assert old.is_silent()


@scene
def login():
    with peers() as peer:
        expect(peer.ask(PING), PONG)


@scene
def no_login():
    with peers() as peer:
        peer.say(PING)
        assert peer.is_silent(500)


SCENES[SCENE]()
