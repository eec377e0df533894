"""Reads the fake machine when asked on standard input, and answers on standard output, pickled.

Without arguments it reads all GPUs; with UUIDs as arguments it reads those, as a user's server does. With ``--pod``
first it does so in a pod, where it reads what it sees when no UUID is named.
"""

from __future__ import annotations

import pickle
import sys

from hub_extensions.adapters.nvml.reader import Nvml
from hub_extensions.core.gpu.devices import GpusUnavailable


def main() -> None:
    now = [0.0]
    pod = sys.argv[1:2] == ["--pod"]
    uuids = tuple(sys.argv[2:] if pod else sys.argv[1:])
    reader = Nvml(uuids if uuids or pod else None, clock=lambda: now[0], pod=pod)
    while True:
        try:
            question = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: object = None
        if question[0] == "close":
            reader.close()
        else:
            now[0] = question[2]
            try:
                answer = reader.read(question[1])
            except GpusUnavailable as problem:
                answer = (problem.state, problem.reason)
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
