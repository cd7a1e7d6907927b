"""The pages of settings, with their origin and without secrets, and of `mailmend doctor`."""

from collections.abc import Mapping
from typing import Any, Final

from mailmend.admin.page.table import PageData, PageRequest, WebPage


def look(data: PageData, _: PageRequest) -> Mapping[str, Any]:
    return {"settings": data.settings}


def look_at_doctor(data: PageData, _: PageRequest) -> Mapping[str, Any]:
    """What `mailmend doctor` says, from its JSON."""
    document = data.doctor()
    assert document.json is not None
    return {"found": document.json["parts"]}


SETTINGS: Final = WebPage(
    path="/settings",
    title="Settings in force",
    menu="Settings",
    template="settings.html",
    look=look,
)
DOCTOR: Final = WebPage(
    path="/doctor",
    title="Doctor",
    menu="Doctor",
    template="doctor.html",
    look=look_at_doctor,
)
