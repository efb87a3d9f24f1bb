"""What a scenario does: a file each. Each begins and ends in the recording."""
