"""The views: they use the project's own packages, and mailmend below them."""

from cql import KEYSPACE
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from model.messages import MAIL, archive, contents


@csrf_exempt
def archived(request: HttpRequest, user: str) -> HttpResponse:
    """Keep a mail in the user's archive, or list what is there."""
    if request.method == "POST":
        return JsonResponse({"uid": archive(user, request.body)}, status=201)
    return JsonResponse({"mails": contents(user)})


def drift(_: HttpRequest) -> HttpResponse:
    """What a check of the keyspace finds."""
    found = MAIL.check("messages", engine="local")
    return JsonResponse({"keyspace": KEYSPACE, "findings": found.summary.findings})
