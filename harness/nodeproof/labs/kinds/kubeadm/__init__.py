"""Clusters that kubeadm makes on virtual machines: to nodeproof, somebody's own cluster."""
