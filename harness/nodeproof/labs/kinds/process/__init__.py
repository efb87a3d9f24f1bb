"""Process nodes: namespaces, and a hollow kubelet in each."""
