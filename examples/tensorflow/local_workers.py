"""Start the workers of multi_worker.py on this machine, as an operator would in pods.

python local_workers.py 2                                    # two workers that are equal
python local_workers.py 2 --slow-worker 1 --slow-input 50    # the second is late for each step, and the first waits for it

All flags but the number go to the workers. They share the machine's ports, so each has a gpuwatch endpoint of its own: the port given by
GPUWATCH_TENSORFLOW_PORT (9839), the one after it, and so on.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("multi_worker.py")


def environments(workers: int) -> list[dict[str, str]]:
    """What tells each worker who it is."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(workers)]
    cluster = {"worker": [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]}
    for one in sockets:
        one.close()
    port, pod = os.environ.get("GPUWATCH_TENSORFLOW_PORT") or "9839", os.environ.get("POD_NAME") or "worker"
    found = []
    for index in range(workers):
        task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        own_port = str(int(port) + index) if port.isdigit() and int(port) else port
        found.append({"TF_CONFIG": json.dumps(task), "POD_NAME": f"{pod}-{index}", "GPUWATCH_TENSORFLOW_PORT": own_port})
    return found


def main() -> int:
    """Start them and wait; returns the worst exit code."""
    if not sys.argv[1:] or not sys.argv[1].isdigit():
        print(__doc__)
        return 2
    command = [sys.executable, str(PROGRAM), *sys.argv[2:]]
    started = [subprocess.Popen(command, env={**os.environ, **one}) for one in environments(int(sys.argv[1]))]
    return max(abs(one.wait()) for one in started)


if __name__ == "__main__":
    sys.exit(main())
