"""The pages of jobs, and the forms that pause and resume a job."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from mailmend.admin.frame.cluster import owner_name
from mailmend.admin.jobs.declaration import Job
from mailmend.admin.jobs.jobs import JobsResult, job_document, jobs_document, statuses_of
from mailmend.admin.page.table import PageChange, PageData, PageRequest, WebPage
from mailmend.model.errors import NotThere, WrongUse
from mailmend.repair.ledger.jobs import JobRuns

RUNS_SHOWN: Final = 50
_RUNS_MAX: Final = 1_000
"""At most this many of the newest runs of a job are listed."""


def look_at_list(data: PageData, _: PageRequest) -> Mapping[str, Any]:
    return {"document": jobs_document(JobsResult(statuses_of(data.opened, data.jobs())))}


def _named(data: PageData, asked: PageRequest) -> Job:
    for job in data.jobs():
        if job.name == asked.path["name"]:
            return job
    raise NotThere("no job of this name is declared", mend="The list of jobs is in the menu.")


def look_at_one(data: PageData, asked: PageRequest) -> Mapping[str, Any]:
    job = _named(data, asked)
    (status,) = statuses_of(data.opened, [job])
    first = _number(asked.text("from"))
    runs = data.opened.existing_job_runs()
    history = []
    if runs:
        history = list(islice(runs.last(job.name, _RUNS_MAX), first, first + RUNS_SHOWN + 1))
    path = f"/jobs/{job.name}"
    more = ""
    newest = ""
    if first:
        newest = path
    if len(history) > RUNS_SHOWN:
        more = asked.link(path, **{"from": str(first + RUNS_SHOWN)})
    return {
        "title": f"Job {job.name}",
        "job": job,
        "status": status,
        "document": job_document(JobsResult([status])),
        "history": history[:RUNS_SHOWN],
        "more": more,
        "first": newest,
    }


def _number(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and int(text) <= _RUNS_MAX):
        raise WrongUse("from is not a number of a run", mend="Follow the links of the page.")
    return int(text)


def _runs_for(data: PageData, asked: PageRequest) -> JobRuns:
    """The runs of jobs, with the name of the token on record in what is written."""
    owner = owner_name()
    if asked.visitor.name:
        owner = f"{asked.visitor.name} by the page, {owner}"
    return replace(data.opened.job_runs(), owner=owner)


def pause(data: PageData, asked: PageRequest, why: str) -> str:
    """Keep the job from beginning; a run that is at work goes on."""
    job = _named(data, asked)
    _runs_for(data, asked).pause(job.name, why)
    return f"/jobs/{job.name}"


def resume(data: PageData, asked: PageRequest, _: str) -> str:
    """Let the job run again; the reason is in the log."""
    job = _named(data, asked)
    _runs_for(data, asked).resume(job.name)
    return f"/jobs/{job.name}"


LIST: Final = WebPage(
    path="/jobs",
    title="Jobs",
    menu="Jobs",
    template="jobs.html",
    look=look_at_list,
)
ONE: Final = WebPage(
    path="/jobs/{name}",
    title="Job",
    template="job.html",
    look=look_at_one,
    below=LIST.path,
)
PAUSE: Final = PageChange(path="/jobs/{name}/pause", event="a job was paused", act=pause)
RESUME: Final = PageChange(path="/jobs/{name}/resume", event="a job was resumed", act=resume)
