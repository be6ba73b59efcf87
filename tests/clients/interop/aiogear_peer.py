"""PyPI `aiogear`: a client and a worker in one event loop. Prints how many jobs came back.

aiogear notes the handle of a job in a task that runs when all packets of a read are handled, and finds the result by the
handle. So both must not come in one read.

Usage: aiogear_peer.py HOST PORT
"""
import asyncio
import os
import sys

from aiogear import Client, Worker

HOST, PORT = sys.argv[1], int(sys.argv[2])
JOBS = 20


def echo(job):
    return job.workload


async def main():
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: Worker((echo, "echo"), loop=loop), HOST, PORT)
    _, client = await loop.create_connection(lambda: Client(loop=loop), HOST, PORT)
    back = 0
    for number in range(JOBS):
        job = await asyncio.create_task(client.submit_job("echo", str(number)))
        # The client has forgotten a job whose result came before.
        if job.handle in client.handles:
            result = await asyncio.wait_for(client.wait_job(job.handle), 30)
            back += result.result == str(number)
    print(back, "of", JOBS, flush=True)
    # Its connections complain when the loop ends before them.
    os._exit(0)


asyncio.run(main())
