"""``gpuwatch top``: the GPUs of one or many nodes in a terminal, from the agents' JSON."""
