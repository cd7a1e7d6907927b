"""What `mailmend serve` answers: the API, James's tasks, and the pages."""

from typing import Final

from mailmend.admin.api.http.routes import API
from mailmend.admin.page.site import with_pages

SERVED: Final = with_pages(API)
