"""Reading the GPUs of a node: the driver, the reader process around it, and the simulated and replayed drivers."""
