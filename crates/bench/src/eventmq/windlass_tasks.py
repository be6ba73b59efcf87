"""The function of every job: appends the job's stamp as a line to the file $WINDLASS_TASKS_DONE."""
import os

_file = None


def done(stamp):
    # Opened in the worker process, not in its parent. Lines written by one call do not mix.
    global _file
    if _file is None:
        _file = os.open(os.environ['WINDLASS_TASKS_DONE'], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(_file, stamp.encode() + b'\n')
