"""Holds memory of the GPU it is given by CUDA_VISIBLE_DEVICES, and keeps it busy, until standard input is closed.

``python -m tests.gpu.work MIB [driver] [rhythm WORKS RESTS]``: says ``holding`` as soon as it does; with a rhythm it
works for so many seconds and rests for so many, again and again. With PyTorch where it is installed, else (or with
``driver``) through the driver's own library, so that it runs wherever the driver does. Ends with a sentence
and status 3 without a GPU.
"""

from __future__ import annotations

import ctypes
import importlib.util
import select
import sys
import time
from collections.abc import Callable


def main() -> None:
    size = int(sys.argv[1]) << 20
    plain = "driver" in sys.argv or importlib.util.find_spec("torch") is None
    work = with_driver(size) if plain else with_torch(size)
    print("holding", size, flush=True)
    works, rests = map(float, sys.argv[sys.argv.index("rhythm") + 1 :][:2]) if "rhythm" in sys.argv else (1.0, 0.0)
    while not select.select([sys.stdin], [], [], rests)[0]:
        until = time.monotonic() + works
        while time.monotonic() < until:
            work()


def with_torch(size: int) -> Callable[[], None]:
    """Multiplies matrices: what a training does most of the time."""
    import torch

    if not torch.cuda.is_available():
        stop("PyTorch finds no GPU here.")
    held = torch.zeros(size, dtype=torch.uint8, device="cuda")
    one = torch.ones(2048, 2048, dtype=torch.float16, device="cuda")

    def work() -> None:
        torch.matmul(one, one)
        torch.cuda.synchronize()
        assert held.numel() == size

    return work


def with_driver(size: int) -> Callable[[], None]:
    """Writes zeros to what it holds, again and again."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        stop("There is no CUDA driver here (libcuda.so.1).")
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()

    def call(name: str, *arguments: object) -> None:
        if code := getattr(cuda, name)(*arguments):
            stop(f"{name} answers {code}.")

    call("cuInit", ctypes.c_uint(0))
    call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    call("cuCtxCreate_v2", ctypes.byref(context), ctypes.c_uint(0), device)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))

    def work() -> None:
        call("cuMemsetD8_v2", memory, ctypes.c_ubyte(0), ctypes.c_size_t(size))
        call("cuCtxSynchronize")

    work()
    return work


def stop(sentence: str) -> None:
    """End, and say why."""
    print(sentence, file=sys.stderr)
    raise SystemExit(3)


if __name__ == "__main__":
    main()
