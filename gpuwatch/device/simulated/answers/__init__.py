"""What the simulated driver answers, one module a subject; each has a table from NVML call to answer."""
