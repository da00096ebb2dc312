"""`/healthz/`, and a page that counts the calls of ``first_run`` that the database remembers."""

from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest, HttpResponse
from django.urls import path


def healthz(_request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


def count(_request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(ContentType.objects.filter(app_label="first_run").count()))


urlpatterns = [path("healthz/", healthz), path("count/", count)]
