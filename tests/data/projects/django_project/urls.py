"""The addresses of the project."""

from admin.views import archived, drift
from django.urls import path

urlpatterns = [
    path("mail/<str:user>", archived),
    path("drift", drift),
]
