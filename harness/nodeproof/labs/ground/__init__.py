"""What any lab that runs under a supervisor stands on."""
