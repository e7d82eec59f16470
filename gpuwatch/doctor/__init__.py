"""What ``gpuwatch check`` tells a person about a node."""
