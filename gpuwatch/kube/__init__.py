"""Who holds a GPU: the kubelet's allocations, the API server's pods, the kernel's processes, and the job that a pod belongs to."""
