"""The controller: the shell around the core. Time, tasks, signals and metrics live here; policy does not."""
