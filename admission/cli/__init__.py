"""The commands of `berth`. Each module is one command; `__main__` finds them and holds the exit codes."""
