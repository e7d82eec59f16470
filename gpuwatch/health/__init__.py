"""Whether a GPU can be trusted, why not, and what to do."""
