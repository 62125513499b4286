"""A training loop that saves when Berth asks, and resumes from its checkpoint. `train` can use any framework.

Needs `berth_checkpoint`: it comes with `pip install berth-queue`, or is api/checkpoint.py, copied beside this
file under that name. Try it without a cluster, stop it with `kill`, and start it again:

    cp api/checkpoint.py examples/checkpoint_loop.py /tmp && cd /tmp && mv checkpoint.py berth_checkpoint.py
    python checkpoint_loop.py /tmp/checkpoint.json --steps 100

examples/training.yaml runs it in a cluster.
"""

import argparse
import json
import os
import sys
import time

import berth_checkpoint


def resume(path: str) -> int:
    """Return the step of the last checkpoint, 0 without one."""
    # Check now that the path is writable, not after hours of training.
    with open(f"{path}.new", "a"):
        pass
    try:
        with open(path) as file:
            return int(json.load(file)["step"])
    except FileNotFoundError:
        return 0


def save(path: str, step: int) -> None:
    """Write a checkpoint, renamed into place so that a crash cannot destroy the previous one."""
    with berth_checkpoint.saving(step):
        with open(f"{path}.new", "w") as file:
            json.dump({"step": step}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.new", path)
    print(f"saved step {step}", flush=True)


def train(step: int, seconds: float) -> int:
    """Do one step of work; forward, backward and the optimizer go here."""
    time.sleep(seconds)
    return step + 1


def main() -> int:
    """Train, save at intervals and on request, and stop when the pod is stopped.

    Returns the exit code.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--step-seconds", type=float, default=0.1)
    parser.add_argument("--save-every", type=int, default=500)
    arguments = parser.parse_args()

    saved = step = resume(arguments.checkpoint)
    print(f"starts at step {step}", flush=True)
    berth_checkpoint.resumed()
    while step < arguments.steps and not berth_checkpoint.stopping():
        step = train(step, arguments.step_seconds)
        if step % arguments.save_every == 0 or berth_checkpoint.requested():
            save(arguments.checkpoint, step)
            saved = step
    # Save the work since the last checkpoint, whether the loop ended by its last step or by SIGTERM.
    if step > saved:
        save(arguments.checkpoint, step)
    print(f"ends at step {step}", flush=True)
    # Exit as SIGTERM would have ended it. With 0, the Job of a pod that was deleted or drained would count as
    # complete and would not continue.
    return 0 if step >= arguments.steps else 143


if __name__ == "__main__":
    sys.exit(main())
