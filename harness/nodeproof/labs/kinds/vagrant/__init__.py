"""Nodes that are virtual machines created by Vagrant."""
