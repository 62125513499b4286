"""The `berth` command line. `__main__` finds the commands, and each module in `commands/` implements one."""
