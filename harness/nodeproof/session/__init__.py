"""One pytest session: its run folder, its lab, its judgments."""
