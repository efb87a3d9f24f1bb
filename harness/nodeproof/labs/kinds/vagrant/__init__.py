"""Nodes that are virtual machines which Vagrant makes."""
