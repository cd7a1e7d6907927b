"""Settings of a small Django project; its packages `admin`, `model` and `cql` have names that mailmend has too."""

ALLOWED_HOSTS = ["testserver"]
DEFAULT_CHARSET = "utf-8"
INSTALLED_APPS = ["admin", "model"]
ROOT_URLCONF = "urls"
SECRET_KEY = "only in this test"
USE_TZ = True
