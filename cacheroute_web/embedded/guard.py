"""Run a program that must not outlive the process that started it.

``python -IS guard.py SIGNAL PARENT PROGRAM ARGUMENT...`` asks the kernel (Linux) to send ``SIGNAL`` to this
process when its parent dies, even by ``kill -9``, and then becomes ``PROGRAM``. The wish survives the exec.
It is a program of its own, not a ``preexec_fn``, because entering a user namespace (`unshare`) clears the wish:
it has to be made after that. Elsewhere than on Linux it only execs; the next start then reclaims what is left.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Ask for the death signal, check that the parent still lives, exec."""
    death_signal, parent, *program = argv
    # The starter blocked SIGINT. Python only takes note of a SIGINT, and exec forgets the note; from here on one ends
    # this process at once.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0) != 0:
            sys.exit(f"guard: prctl: {os.strerror(ctypes.get_errno())}")
        if os.getppid() != int(parent):  # it died before we asked
            sys.exit("guard: the starting process is gone")
    try:
        os.execvp(program[0], program)  # noqa: S606  a fixed program, no shell
    except OSError as error:
        sys.exit(f"guard: {program[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
