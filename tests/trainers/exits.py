import sys

print("nothing to do")
sys.exit(3)
