"""Ask the project's pages in one process, and print the answers."""

import os

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"

import admin
import cql
import django
import model

django.setup()

from django.test import Client

client = Client()
content = b"Subject: hello\r\n\r\nGood day.\r\n"
print(client.post("/mail/ann@example.org", content, content_type="message/rfc822").json())
print(client.get("/mail/ann@example.org").json())
print(client.get("/drift").json()["findings"])
print(*(package.__doc__ for package in (admin, model, cql)), sep="\n")
