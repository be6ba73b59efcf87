"""A worker: takes jobs of a queue over HTTP. python3 worker.py http://127.0.0.1:7420 QUEUE"""

import json
import sys
import urllib.request

url, queue = sys.argv[1:]


def post(path, body=b""):
    with urllib.request.urlopen(urllib.request.Request(f"{url}/api/v1/{path}", data=body, method="POST")) as answer:
        return answer.read()


while taken := post(f"queues/{queue}/take?wait=1s"):  # empty: no job came in time
    job = json.loads(taken)
    try:
        print("working on", job["body"], flush=True)
        post(f"leases/{job['lease']}/done", b"done")
    except Exception as error:
        post(f"leases/{job['lease']}/fail", str(error).encode())
