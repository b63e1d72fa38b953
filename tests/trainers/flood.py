"""Writes everything that a terminal program must survive from its child, while it trains. No torch is needed for that.

argv: kinds of output, in order; ``read`` tries stdin, ``tty`` the terminal itself. The last line is ``FLOOD OVER``.
"""

import os
import sys
import time

out = sys.stdout.buffer


def megabytes():
    for number in range(40_000):
        out.write(b"line %d of very many, each about as long as a line of a log usually is\n" % number)


def controls():
    out.write(
        b"\x1b[2J\x1b[H\x1b[?1049l\x1b[?25h\x1b[31mred\x1b]0;title\x07\x1bc\x1b(0lqqk\x1b(B\x07\x08\x0e\x0f\x9b31m\n"
    )


def markup():
    out.write(b"[/] [/loss] [bold]not bold[/bold] [@click=app.quit]x[/] [/home/u/data] loaded \\[x]\n")


def invalid():
    out.write(b"caf\xe9 \xff\xfe \xc3\x28 \xf0\x9f\x9a \x00 end\n")


def bars():
    for number in range(2_000):
        sys.stderr.write(f"\r {number / 20:.0f}%|{'█' * (number // 100):20}| {number}/2000")
    sys.stderr.write("\n")


def long_line():
    out.write(b"x" * 5_000_000 + b"\n")


def wide():
    out.write("漢字🙂‍↔️ e\u0301 \u202eright to left\u202c \ufeff\u200b tab\tend\n".encode())


def read():
    try:
        print("stdin says", repr(sys.stdin.readline()))
        print("input says", repr(input("your name? ")))
    except EOFError as error:
        print("EOFError", error)


def tty():
    try:
        with open("/dev/tty", "w") as terminal:
            terminal.write("\x1b[2Jhello from /dev/tty\n")
        print("tty was there")
    except OSError as error:
        print("no tty:", error.strerror)


for kind in sys.argv[1:]:
    globals()[kind]()
    sys.stdout.flush()
    time.sleep(float(os.environ.get("REST_S", "0")))
print("FLOOD OVER", flush=True)
