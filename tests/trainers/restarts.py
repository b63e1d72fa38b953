"""Two trainings side by side that know nothing of each other; one that is killed is started again."""

import os
import subprocess
import sys
import time

PLAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plain.py")


def start():
    return subprocess.Popen([sys.executable, PLAIN])


trainings = [start(), start()]
while any(training.poll() is None for training in trainings):
    trainings = [start() if (training.poll() or 0) < 0 else training for training in trainings]
    time.sleep(0.1)
