"""Guard, ledger, dead-man's switch, janitor, injector."""
