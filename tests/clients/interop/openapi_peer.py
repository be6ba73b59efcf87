"""Plays a job's life through a client that openapi-python-client has generated. Arguments: the folder of the client, the address."""

import io
import sys

folder, url = sys.argv[1:]
sys.path.insert(0, folder)

from windlass_api import Client
from windlass_api.api.jobs import get_job, get_job_body, kill_jobs, list_jobs, retry_jobs
from windlass_api.api.queues import get_queue, pause_queue
from windlass_api.api.schedules import list_schedules
from windlass_api.api.status import get_history, status, wait
from windlass_api.api.work import fail_job, finish_job, push_job, take_job
from windlass_api.models import State, WaitUntil
from windlass_api.types import File

client = Client(base_url=url, raise_on_unexpected_status=True)


def body(data):
    return File(payload=io.BytesIO(data))


ids = [push_job.sync("mails", client=client, body=body(b"\xff" + bytes([n])), priority=7, retries=0).id for n in range(3)]
assert status.sync(client=client).jobs == 3
assert sum(day.counts["pushed"] for day in get_history.sync(client=client, days=2).days) == 3
listed = list_jobs.sync(client=client, queue="mails", state=State.READY).jobs
assert sorted(job.id for job in listed) == ids and listed[0].priority == 7
assert get_job_body.sync_detailed(ids[0], client=client).content == b"\xff\x00"

taken = take_job.sync("mails", client=client, lease="5m", worker="python")
job = get_job.sync(taken.id, client=client)
assert job.state == State.LEASED and job.lease.worker == "python" and job.why.code == "leased"
assert finish_job.sync_detailed(taken.lease, client=client, body=body(b"fine")).status_code == 204
assert get_job.sync(taken.id, client=client).code == "not_found"

assert kill_jobs.sync(client=client, queue="mails", dry_run=True).changed == 2
assert kill_jobs.sync(client=client, queue="mails").changed == 2
assert retry_jobs.sync(client=client, state=State.DEAD).changed == 2
taken = take_job.sync("mails", client=client)
assert fail_job.sync(taken.lease, client=client, body=body(b"broken"), kind="E").state == "discarded"
assert pause_queue.sync("mails", client=client).paused and get_queue.sync("mails", client=client).states["ready"] == 1
assert list_schedules.sync(client=client).schedules == []
assert wait.sync(client=client, until=WaitUntil.EMPTY, timeout="10ms").code == "conflict"
print("ok")
