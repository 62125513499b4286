"""The controller: the shell around the core. It holds time, tasks, signals and metrics, but no policy."""
