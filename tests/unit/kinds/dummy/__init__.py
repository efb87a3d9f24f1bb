"""A kind of lab that no supervisor of nodeproof runs."""
