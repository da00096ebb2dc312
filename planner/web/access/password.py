"""The page that changes the password of the signed-in user."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.views import PasswordChangeView
from django.http import HttpResponse
from django.urls import reverse_lazy

from planner.services.audit.events import record_event
from planner.web.access.forms import PasswordForm


class Password(PasswordChangeView):
    """Change the password. Other sessions of the account end."""

    form_class = PasswordForm
    template_name = "form.html"
    success_url = reverse_lazy("home")
    extra_context = {"title": "Password", "submit": "Change password"}

    def form_valid(self, form: Any) -> HttpResponse:
        """Audit the change, without the password."""
        answer = super().form_valid(form)
        user: Any = self.request.user
        record_event("account.password_changed", acting_user=user, fleet=None, subject=user)
        messages.success(self.request, "Your password is changed. Your other sessions have ended.")
        return answer
