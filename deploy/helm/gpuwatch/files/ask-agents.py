"""Asks every agent behind the Service whether it can read its GPUs; needs no credentials. Run by "helm test"."""

import http.client
import os
import socket
import ssl
import sys

PORT = int(os.environ["PORT"])
SECONDS = 10
# The certificate is not looked at: addresses are asked, and nothing but "ready" is told.
CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
CONTEXT.check_hostname = False
CONTEXT.verify_mode = ssl.CERT_NONE


def ask(address: str) -> str:
    """What the agent at that address says of itself."""
    if os.environ["SCHEME"] == "https":
        client: http.client.HTTPConnection = http.client.HTTPSConnection(address, PORT, timeout=SECONDS, context=CONTEXT)
    else:
        client = http.client.HTTPConnection(address, PORT, timeout=SECONDS)
    try:
        client.request("GET", "/readyz")
        answer = client.getresponse()
        text = answer.read(300).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return f"no answer: {error}"
    finally:
        client.close()
    return "ready" if answer.status == http.client.OK else f"not ready: {text}"


try:
    found = socket.getaddrinfo(os.environ["SERVICE"], PORT, type=socket.SOCK_STREAM)
except socket.gaierror as error:
    sys.exit(f"no agent: {os.environ['SERVICE']}: {error}. Does any node have one of the labels in gpuNodes.anyOf?")
answers = {address: ask(address) for address in sorted({str(one[4][0]) for one in found})}
sys.stdout.write("".join(f"{address} {said}\n" for address, said in answers.items()))
failed = sum(said != "ready" for said in answers.values())
sys.exit(f"{failed} of {len(answers)} agents are not ready" if failed else 0)
