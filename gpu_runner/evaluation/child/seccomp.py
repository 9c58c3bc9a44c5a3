"""A filter of system calls that no kernel or its harness needs, and that widen the attack surface.

A list of refusals, not of permissions: what PyTorch, Triton, a C compiler and a GPU driver call
differs between versions, what is refused here does not. Chiefly new user namespaces (they would
hand back capabilities), mounts, tracing, and socket families that network namespaces do not cover.
"""

import ctypes
import errno
import os
import struct

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
NUMBER, ARCH, ARGUMENT = 0, 4, 16

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32_BIT = 0x40000000

# Calls by name; the numbers of x86-64 and of the generic table that 64-bit ARM uses.
REFUSED: dict[str, tuple[int, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
}
CLONE, CLONE3, SOCKET = (56, 220), (435, 435), (41, 198)
CLONE_NEW_ANYTHING = 0x7E020080  # user, pid, net, ipc, mount, cgroup, uts and time namespaces
FAMILIES = (1, 2, 10, 16)  # Unix, IPv4, IPv6, netlink: all of them stop at the network namespace


def install() -> None:
    """Refuse the calls above for this process and all it will start; needs no_new_privs.

    On other architectures nothing is installed: namespaces and capabilities hold without it.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        return
    instructions = program(machine)
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HP", len(instructions), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "install the filter of system calls")


def program(machine: str) -> list[tuple[int, int, int, int]]:
    """Berkeley packet filter instructions: operation, jump if true, jump if false, operand."""
    column = list(ARCHITECTURES).index(machine)
    refuse, absent = refusal(errno.EPERM), refusal(errno.ENOSYS)
    steps = [
        (LOAD, 0, 0, ARCH),
        (EQUAL, 1, 0, ARCHITECTURES[machine]),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
    ]
    if machine == "x86_64":
        steps += [(ANY_BIT, 0, 1, X32_BIT), refuse]
    for numbers in REFUSED.values():
        number = numbers[column]
        if number is not None:
            steps += [(EQUAL, 0, 1, number), refuse]
    # The flags of clone3 lie in memory that a filter cannot read; the C library then uses clone.
    steps += [(EQUAL, 0, 1, CLONE3[column]), absent]
    steps += [
        (EQUAL, 0, 4, CLONE[column]),
        (LOAD, 0, 0, ARGUMENT),
        (ANY_BIT, 0, 1, CLONE_NEW_ANYTHING),
        refuse,
        (RETURN, 0, 0, ALLOW),
    ]
    steps += [(EQUAL, 0, len(FAMILIES) + 3, SOCKET[column]), (LOAD, 0, 0, ARGUMENT)]
    steps += [
        (EQUAL, len(FAMILIES) - position, 0, family) for position, family in enumerate(FAMILIES)
    ]
    steps += [refusal(errno.EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)]
    return [*steps, (RETURN, 0, 0, ALLOW)]


def refusal(code: int) -> tuple[int, int, int, int]:
    return (RETURN, 0, 0, REFUSE | code)
