"""A training loop that saves when Berth asks, and resumes where it was. Any framework fits into `train`.

python examples/checkpoint_loop.py /tmp/checkpoint.json --steps 100
"""

import argparse
import json
import os
import time

import berth_checkpoint


def resume(path: str) -> int:
    """Return the step of the last checkpoint, 0 without one."""
    try:
        with open(path) as file:
            return int(json.load(file)["step"])
    except FileNotFoundError:
        return 0


def save(path: str, step: int) -> None:
    """Write a checkpoint. A crash half way must not cost the one before, so it is renamed into place."""
    with open(f"{path}.new", "w") as file:
        json.dump({"step": step}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def train(step: int, seconds: float) -> int:
    """Do one step of work; forward, backward and the optimizer go here."""
    time.sleep(seconds)
    return step + 1


def main() -> None:
    """Train, save every few steps and whenever it is asked for, leave when the pod is stopped."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--step-seconds", type=float, default=0.1)
    parser.add_argument("--save-every", type=int, default=500)
    arguments = parser.parse_args()

    step = resume(arguments.checkpoint)
    print(f"starts at step {step}", flush=True)
    while step < arguments.steps and not berth_checkpoint.stopping():
        step = train(step, arguments.step_seconds)
        if step % arguments.save_every == 0 or berth_checkpoint.requested():
            with berth_checkpoint.saving(step):
                save(arguments.checkpoint, step)
            print(f"saved step {step}", flush=True)
    if berth_checkpoint.requested():
        with berth_checkpoint.saving(step):
            save(arguments.checkpoint, step)
        print(f"saved step {step}", flush=True)
    print(f"ends at step {step}", flush=True)


if __name__ == "__main__":
    main()
