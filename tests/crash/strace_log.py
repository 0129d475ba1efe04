"""Reads what strace wrote about a broker: which system calls it made, and in which order they began and ended.

strace handles one stop of one thread at a time, so the order of its lines is an order in which things happened:
if a call that returned allowed another to begin, its line of return comes first.
"""

import re
from dataclasses import dataclass

# `-xx` writes every byte as \xNN, so that a payload can be searched for whatever it contains.
CALL = re.compile(r"^(?P<thread>\d+) +(?P<name>\w+)\((?P<rest>.*)$")
RESUMED = re.compile(r"^(?P<thread>\d+) +<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)$")
RESULT = re.compile(r" = (?P<value>-?\d+)[^=]*$")
UNFINISHED = "<unfinished ...>"

READS = {"read", "readv", "recvfrom", "recvmsg"}
WRITES = {"write", "writev", "sendto", "sendmsg"}
FILE_WRITES = {"write", "writev", "pwrite64", "pwritev", "pwritev2"}
TRACED = sorted(READS | WRITES | FILE_WRITES | {"fdatasync", "fsync"})


@dataclass
class Call:
    name: str
    text: str
    began: int
    ended: int | None = None
    result: int | None = None

    @property
    def is_socket(self):
        return "<TCP" in self.text or "<socket:" in self.text

    def carries(self, octets):
        return "".join(f"\\x{octet:02x}" for octet in octets) in self.text


def parse(lines):
    """Every system call in the order of its begin, with the line numbers of its begin and its end."""
    calls, open_calls = [], {}
    for number, line in enumerate(lines):
        if resumed := RESUMED.match(line):
            call = open_calls.pop(resumed["thread"])
            call.text += resumed["rest"]
            finish(call, number)
        elif begun := CALL.match(line):
            call = Call(begun["name"], begun["rest"].removesuffix(UNFINISHED), number)
            calls.append(call)
            if begun["rest"].endswith(UNFINISHED):
                open_calls[begun["thread"]] = call
            else:
                finish(call, number)
    return calls


def finish(call, number):
    call.ended = number
    if result := RESULT.search(call.text):
        call.result = int(result["value"])
