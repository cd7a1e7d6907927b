"""The units of systemd: a timer and a service for each job, and a service for each server."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

from mailmend.admin.jobs.cron import Cron
from mailmend.admin.jobs.declaration import Job, Missed
from mailmend.admin.jobs.units import MADE, STOP_SECONDS, ServerCommand, UnitPlace, limit_seconds

_ALL_DAYS: Final = 31
_WEEKDAYS: Final = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")

_RESTART_SECONDS: Final = 10
_AFTER_STOP_SECONDS: Final = 30
"""How much longer than its runs the server of jobs may take to end."""


def systemd_units(jobs: Sequence[Job], place: UnitPlace) -> dict[str, str]:
    """A service and a timer for each job."""
    files = {}
    for job in jobs:
        name = f"mailmend-{job.name}"
        files[f"{name}.service"] = _service(job, place)
        files[f"{name}.timer"] = _timer(job)
    return files


def on_calendar(cron: Cron, zone: str) -> Iterator[str]:
    """The schedule as systemd reads it; two lines where a day of either kind counts."""
    clock = f"{_numbers(cron.hours, 24)}:{_numbers(cron.minutes, 60)}:00 {zone}"
    months = _numbers(cron.months, 12)
    weekdays = ",".join(_WEEKDAYS[weekday] for weekday in cron.weekdays)
    if len(cron.weekdays) == len(_WEEKDAYS) or len(cron.days) < _ALL_DAYS:
        yield f"*-{months}-{_numbers(cron.days, _ALL_DAYS)} {clock}"
    if len(cron.weekdays) < len(_WEEKDAYS):
        yield f"{weekdays} *-{months}-* {clock}"


def _numbers(values: Sequence[int], span: int) -> str:
    if len(values) == span:
        return "*"
    return ",".join(f"{value:02}" for value in values)


def _timer(job: Job) -> str:
    times = "\n".join(f"OnCalendar={line}" for line in on_calendar(job.schedule, job.zone.key))
    persistent = "true" if job.missed is Missed.RUN else "false"
    return f"""\
# {MADE.format(job=job.name)}
[Unit]
Description=When mailmend's job {job.name} runs

[Timer]
{times}
Persistent={persistent}
AccuracySec=1s

[Install]
WantedBy=timers.target
"""


_USER: Final = """\
# The user has to be there, and to read the settings:
# useradd --system --shell /usr/sbin/nologin {user}
"""

_LOCKED_UP: Final = """\
User={user}
EnvironmentFile=-/etc/mailmend/environment
Environment=HOME=%S/mailmend XDG_DATA_HOME=%S
StateDirectory=mailmend
WorkingDirectory=%S/mailmend
{times}KillMode=mixed
SuccessExitStatus=130
UMask=0077
NoNewPrivileges=yes
{capabilities}PrivateTmp=yes
PrivateDevices=yes
ProtectSystem=strict
{writable}ProtectHome=read-only
ProtectClock=yes
ProtectHostname=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
"""
"""What every service has: its user, its state folder, its times, and what it may not do."""

_NO_CAPABILITIES: Final = "CapabilityBoundingSet=\n"
_LOW_PORTS: Final = """\
CapabilityBoundingSet=CAP_NET_BIND_SERVICE
AmbientCapabilities=CAP_NET_BIND_SERVICE
"""


def _service(job: Job, place: UnitPlace) -> str:
    locked_up = _LOCKED_UP.format(
        user=place.user,
        times=f"TimeoutStartSec={limit_seconds(job)}\nTimeoutStopSec={STOP_SECONDS}\n",
        capabilities=_NO_CAPABILITIES,
        writable=_writable(job.metrics_file),
    )
    return f"""\
# {MADE.format(job=job.name)}
{_USER.format(user=place.user)}\
# Passwords, if the settings name no file with them, stand in /etc/mailmend/environment:
# MAILMEND_PASSWORD=...
[Unit]
Description=mailmend {_escaped(job.command)}
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
ExecStart={_command_line(place.words(job))}
{locked_up}"""


def server_units(servers: Sequence[ServerCommand], place: UnitPlace) -> dict[str, str]:
    """A service for each server, which systemd starts at boot, and again where it failed."""
    return {f"{server.name}.service": _server_service(server, place) for server in servers}


def _server_service(server: ServerCommand, place: UnitPlace) -> str:
    reload = ""
    if server.reads_again:
        reload = "ExecReload=/bin/kill -HUP $MAINPID\n"
    capabilities = _NO_CAPABILITIES
    if server.has_low_port:
        capabilities = _LOW_PORTS
    locked_up = _LOCKED_UP.format(
        user=place.user,
        times=f"TimeoutStopSec={STOP_SECONDS + _AFTER_STOP_SECONDS}\n",
        capabilities=capabilities,
        writable=_writable(server.metrics_file),
    )
    return f"""\
# Made by `mailmend jobs install --service`: make it anew with another command.
{_USER.format(user=place.user)}\
# Passwords and keys, if no file is named for them, stand in /etc/mailmend/environment, mode 600:
# MAILMEND_PASSWORD=..., MAILMEND_BROKER=..., MAILMEND_S3_ACCESS_KEY=..., MAILMEND_S3_SECRET_KEY=...
[Unit]
Description=mailmend {_escaped(server.command)}
Wants=network-online.target
After=network-online.target
# A cluster or a broker that is away at the start is tried again for as long as it takes.
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={_command_line(place.words_of(server.words))}
{reload}Restart=on-failure
RestartSec={_RESTART_SECONDS}
LimitNOFILE=65536
{locked_up}
[Install]
WantedBy=multi-user.target
"""


def _writable(metrics_file: str | PurePath | None) -> str:
    """Where a service may write in addition to its own folder."""
    if not metrics_file:
        return ""
    folder = PurePath(metrics_file).parent
    return f"ReadWritePaths={_systemd_word(f'-{folder}')}\n"


def _command_line(words: Sequence[str]) -> str:
    return " ".join(map(_systemd_word, words))


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _systemd_word(word: str) -> str:
    plain = _escaped(word).replace("$", "$$")
    if re.fullmatch(r"[\w./:=@%$+,-]+", plain):
        return plain
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
