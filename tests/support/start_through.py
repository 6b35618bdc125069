"""A program that has another one forked by the fork server, and stands for it: `start_through.py SERVER -m MODULE ...`.

For programs that something else starts, by a command line. It passes its streams, waits, passes signals on, and ends
as the other ended. When it is killed, the server kills the other. Without the server it becomes what was asked for.

It loads nothing that the interpreter has not loaded already (`python -I -S`), and so it starts in 10 ms.
"""

import marshal
import posix
import sys
from _signal import SIG_BLOCK, SIG_DFL, SIG_UNBLOCK, SIGHUP, SIGINT, SIGTERM, pthread_sigmask
from _signal import signal as on_signal
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET
from _socket import socket as Socket

FORKED = ("-m", "-P")
PASSED_ON = (SIGINT, SIGTERM, SIGHUP)


def main(address, *argv):
    environment = {name.decode(): value.decode() for name, value in posix.environ.items()}
    option = argv[0] if argv and argv[0].startswith("-") else "-m"
    with_server = Socket(AF_UNIX, SOCK_SEQPACKET)
    try:
        if option not in FORKED:
            raise OSError
        with_server.connect(f"\0{address}")
    except OSError:
        posix.execv(sys.executable, [sys.executable, *argv])
    descriptors = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
    # The other may be told to end as soon as it runs, which is before its pid is known here.
    pthread_sigmask(SIG_BLOCK, PASSED_ON)
    request = marshal.dumps((argv, posix.getcwd(), environment, False))
    with_server.sendmsg([request], [(SOL_SOCKET, SCM_RIGHTS, descriptors)])
    pid = int(with_server.recv(20))
    for number in PASSED_ON:
        on_signal(number, lambda number, _: posix.kill(pid, number))
    pthread_sigmask(SIG_UNBLOCK, PASSED_ON)
    for number in range(3):
        posix.close(number)
    status = int(with_server.recv(20) or 9)
    code = posix.waitstatus_to_exitcode(status)
    if code < 0:
        on_signal(-code, SIG_DFL) if -code in PASSED_ON else None
        posix.kill(posix.getpid(), -code)
    posix._exit(code)


main(*sys.argv[1:])
