"""What the chart takes from the code: the schema of its values."""
