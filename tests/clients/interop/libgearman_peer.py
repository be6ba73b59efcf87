"""libgearman, the C library behind gearman(1) and many bindings, as a peer of the interop tests; `peers.rs` describes the
lines it speaks. Called through ctypes, so that nothing needs a compiler.

Usage: libgearman_peer.py HOST PORT client [exceptions] | libgearman_peer.py HOST PORT worker
"""
import ctypes
import sys
from ctypes import CFUNCTYPE, POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_uint32, c_void_p

from speech import orders, say, wait_while_there

SUCCESS, WORK_FAIL = 0, 24

LIBC = ctypes.CDLL(None)
LIBC.malloc.restype, LIBC.malloc.argtypes = c_void_p, [c_size_t]
LIB = ctypes.CDLL("libgearman.so.8")
TASK_FN = CFUNCTYPE(c_int, c_void_p)
WORKER_FN = CFUNCTYPE(c_void_p, c_void_p, c_void_p, POINTER(c_size_t), POINTER(c_int))


def declare(result, name, *arguments):
    function = getattr(LIB, "gearman_" + name)
    function.restype, function.argtypes = result, arguments
    return function


strerror = declare(c_char_p, "strerror", c_int)
client_create = declare(c_void_p, "client_create", c_void_p)
client_add_server = declare(c_int, "client_add_server", c_void_p, c_char_p, c_uint32)
client_set_server_option = declare(c_bool, "client_set_server_option", c_void_p, c_char_p, c_size_t)
client_run_tasks = declare(c_int, "client_run_tasks", c_void_p)
client_job_status = declare(
    c_int, "client_job_status", c_void_p, c_char_p, POINTER(c_bool), POINTER(c_bool), POINTER(c_uint32), POINTER(c_uint32)
)
task_context = declare(c_void_p, "task_context", c_void_p)
task_job_handle = declare(c_char_p, "task_job_handle", c_void_p)
task_data = declare(c_void_p, "task_data", c_void_p)
task_data_size = declare(c_size_t, "task_data_size", c_void_p)
task_numerator = declare(c_uint32, "task_numerator", c_void_p)
task_denominator = declare(c_uint32, "task_denominator", c_void_p)
worker_create = declare(c_void_p, "worker_create", c_void_p)
worker_add_server = declare(c_int, "worker_add_server", c_void_p, c_char_p, c_uint32)
worker_set_identifier = declare(c_int, "worker_set_identifier", c_void_p, c_char_p, c_size_t)
worker_add_function = declare(c_int, "worker_add_function", c_void_p, c_char_p, c_uint32, WORKER_FN, c_void_p)
worker_work = declare(c_int, "worker_work", c_void_p)
job_workload = declare(c_void_p, "job_workload", c_void_p)
job_workload_size = declare(c_size_t, "job_workload_size", c_void_p)
job_send_status = declare(c_int, "job_send_status", c_void_p, c_uint32, c_uint32)
job_send_data = declare(c_int, "job_send_data", c_void_p, c_char_p, c_size_t)
job_send_warning = declare(c_int, "job_send_warning", c_void_p, c_char_p, c_size_t)
job_send_exception = declare(c_int, "job_send_exception", c_void_p, c_char_p, c_size_t)


def must(code):
    if code != SUCCESS:
        raise RuntimeError(strerror(code).decode())


class Client:
    def __init__(self, exceptions):
        self.client = client_create(None)
        must(client_add_server(self.client, HOST, PORT))
        if exceptions:
            assert client_set_server_option(self.client, b"exceptions", len(b"exceptions"))
        # The context of a task is its number here.
        self.tags = []
        self.kept = []
        self.on("created", lambda task: (task_job_handle(task).decode(),))
        self.on("data", lambda task: (data_of(task),))
        self.on("warning", lambda task: (data_of(task),))
        self.on("status", lambda task: (task_numerator(task), task_denominator(task)))
        self.on("complete", lambda task: (data_of(task),))
        self.on("fail", lambda task: ())
        self.on("exception", lambda task: (data_of(task),))

    def on(self, event, words):
        def callback(task):
            say(self.tags[task_context(task) - 1], event, *words(task))
            return SUCCESS

        callback = TASK_FN(callback)
        self.kept.append(callback)
        declare(None, "client_set_%s_fn" % event, c_void_p, TASK_FN)(self.client, callback)

    def submit(self, tag, way, priority, function, unique, body):
        name = "client_add_task"
        name += "" if priority == "normal" else "_" + priority
        name += "" if way == "foreground" else "_background"
        add = declare(
            c_void_p, name, c_void_p, c_void_p, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t, POINTER(c_int)
        )
        self.tags.append(tag)
        # libgearman keeps the pointers until the task is over.
        function, unique, body = function.encode(), bytes.fromhex(unique) or None, bytes.fromhex(body) or None
        self.kept.append((function, unique, body))
        code = c_int()
        add(self.client, None, len(self.tags), function, unique, body, len(body or b""), byref(code))
        must(code.value)

    def wait(self):
        must(client_run_tasks(self.client))

    def ask(self, tag, handle):
        known, running, numerator, denominator = c_bool(), c_bool(), c_uint32(), c_uint32()
        must(
            client_job_status(
                self.client, handle.encode(), byref(known), byref(running), byref(numerator), byref(denominator)
            )
        )
        say(tag, "is", int(known.value), int(running.value), numerator.value, denominator.value)


def data_of(task):
    return ctypes.string_at(task_data(task), task_data_size(task)) if task_data_size(task) else b""


def client(exceptions):
    peer = Client(exceptions)
    for order in orders():
        getattr(peer, order[0])(*order[1:])


def worker():
    peer = worker_create(None)
    must(worker_add_server(peer, HOST, PORT))
    must(worker_set_identifier(peer, b"interop", len(b"interop")))
    callbacks = []
    for name, function in {"echo": echo, "note": note, "steps": steps, "fail": fail, "raise": raises, "hold": hold}.items():
        callbacks.append(WORKER_FN(called(function)))
        must(worker_add_function(peer, name.encode(), 0, callbacks[-1], None))
    while True:
        # The return code reports the end of the job as well.
        code = worker_work(peer)
        if code != WORK_FAIL:
            must(code)


def called(function):
    """Wraps job, body -> result, code as libgearman calls it. libgearman frees the result."""

    def wrapped(job, _context, size, code):
        body = ctypes.string_at(job_workload(job), job_workload_size(job)) if job_workload_size(job) else b""
        result, code[0] = function(job, body)
        size[0] = len(result)
        memory = LIBC.malloc(max(1, len(result)))
        ctypes.memmove(memory, result, len(result))
        return memory

    return wrapped


def echo(_, body):
    return body, SUCCESS


def note(_, body):
    say("worker", "note", body)
    return body, SUCCESS


def steps(job, body):
    must(job_send_status(job, 1, 2))
    must(job_send_data(job, b"half of ", 8))
    must(job_send_warning(job, b"mind the gap", 12))
    return b"whole of " + body, SUCCESS


def fail(_, body):
    return b"", WORK_FAIL


def raises(job, body):
    # With the code WORK_EXCEPTION, libgearman sends only WORK_FAIL.
    must(job_send_exception(job, b"went wrong", 10))
    return b"", SUCCESS


def hold(job, body):
    must(job_send_status(job, 3, 4))
    wait_while_there(body)
    return b"let go", SUCCESS


HOST, PORT = sys.argv[1].encode(), int(sys.argv[2])
client("exceptions" in sys.argv) if sys.argv[3] == "client" else worker()
