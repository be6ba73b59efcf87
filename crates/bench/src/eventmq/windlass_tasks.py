"""What the JobManager calls for every job: it notes the job's stamp, one line each, in the file $WINDLASS_TASKS_DONE."""
import os

_file = None


def done(stamp):
    # Opened in the process that works, not in the one it was forked from. Lines of one write do not mix.
    global _file
    if _file is None:
        _file = os.open(os.environ['WINDLASS_TASKS_DONE'], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(_file, stamp.encode() + b'\n')
