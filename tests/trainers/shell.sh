#!/bin/sh
# A command that is no Python at all: it writes to both streams and ends with its own status.
echo "starting $1"
echo "to stderr" >&2
exit 7
