"""The HTTP side of the agent: TLS and credentials, connections, and the pages people read."""
