#!/bin/sh
# A launch script as many repositories have one: it sets PYTHONPATH anew, and whatever stood in it is gone.
PYTHONPATH=. exec "${PYTHON:-python}" "$(dirname "$0")/plain.py"
