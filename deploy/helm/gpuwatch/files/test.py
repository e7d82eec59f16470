"""Asks every agent behind the Service whether it can read its GPUs; needs no credentials. Run by "helm test"."""

import os
import socket
import ssl
import sys
import urllib.error
import urllib.request

# The certificate is not looked at: addresses are asked, and nothing but "ready" is told.
context = ssl._create_unverified_context()
context.check_hostname = False


def answer(address: str) -> str:
    """What the agent at that address says of itself."""
    host = f"[{address}]" if ":" in address else address
    try:
        with urllib.request.urlopen(f"{os.environ['SCHEME']}://{host}:{os.environ['PORT']}/readyz", timeout=10, context=context):
            return "ready"
    except urllib.error.HTTPError as error:
        return f"not ready: {error.read(300).decode(errors='replace').strip()}"
    except OSError as error:
        return f"no answer: {error}"


try:
    found = socket.getaddrinfo(os.environ["SERVICE"], int(os.environ["PORT"]), type=socket.SOCK_STREAM)
except socket.gaierror as error:
    sys.exit(f"no agent: {os.environ['SERVICE']}: {error}. Does any node have one of the labels in gpuNodes.anyOf?")
answers = {address[4][0]: answer(address[4][0]) for address in found}
print("\n".join(f"{address} {said}" for address, said in sorted(answers.items())))
failed = sum(said != "ready" for said in answers.values())
sys.exit(f"{failed} of {len(answers)} agents are not ready" if failed else 0)
