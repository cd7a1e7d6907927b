"""How many files and sockets this process may have open: its soft limit rises to what a service needs."""

import resource


def allow_open_files(wanted: int) -> int:
    """Raise the soft limit to at least this number, as far as the hard limit allows; the limit that holds then.

    A soft limit that is higher stays. An unlimited number counts as the wanted one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError):  # the system has a lower limit for all processes
        return soft
    return target
