"""Says whether the Python that runs this can carry the set-up: prints its path, or prints what is wrong and exits 1.

Plain enough for any Python 3 to read. Started by root, it also asks whether the unprivileged uid can reach this Python.
"""

import os
import sys

UNPRIVILEGED = 65534


def reachable(uid):
    """Whether `uid` can run this Python and read its library; asked by becoming that uid in a child."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        with open(os.path.realpath(sys.executable), "rb") as interpreter, open(os.__file__, "rb") as library:
            interpreter.read(1)
            library.read(1)
        os._exit(0 if os.access(sys.executable, os.X_OK) else 1)
    except OSError:
        os._exit(1)


def objection():
    """What speaks against this Python, as half a sentence; empty when nothing does."""
    version = "%d.%d" % sys.version_info[:2]
    if not (3, 10) <= sys.version_info[:2] <= (3, 14):
        return "%s is Python %s" % (sys.executable, version)
    try:
        import ssl  # noqa: F401
        import zlib  # noqa: F401
    except ImportError as missing:
        return "%s lacks the module %s" % (sys.executable, missing.name)
    if os.getuid() == 0 and not reachable(UNPRIVILEGED):
        return "%s cannot be reached by uid %d, which root's runs use" % (sys.executable, UNPRIVILEGED)
    return ""


if __name__ == "__main__":
    against = objection()
    print(against or sys.executable)
    sys.exit(1 if against else 0)
