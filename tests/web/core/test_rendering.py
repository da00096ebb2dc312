"""One template draws the fields of every form, in pages that show the form whole and in pages that place its fields."""

from __future__ import annotations

import pytest
from django import forms
from django.urls import reverse

from planner.web.core.forms import Styled

pytestmark = pytest.mark.django_db


class Sample(Styled):
    name = forms.CharField(help_text="Shown in lists")
    note = forms.CharField(required=False)
    sure = forms.BooleanField(label="I am sure")
    kinds = forms.MultipleChoiceField(choices=[("a", "A"), ("b", "B")], widget=forms.CheckboxSelectMultiple)
    version = forms.IntegerField(widget=forms.HiddenInput)

    def clean(self) -> None:
        raise forms.ValidationError("<b> does not fit")


def test_a_form_draws_labels_help_errors_and_hidden_fields():
    html = str(Sample({"name": "", "version": "x"}))
    assert '<label class="form-label" for="id_name">Name</label>' in html
    assert 'for="id_note">Note <span class="quiet">(optional)</span></label>' in html
    assert '<div class="help" id="id_name_helptext">Shown in lists</div>' in html
    assert '<ul class="errors" id="id_name_error" role="alert"><li>✗ This field is required.</li></ul>' in html
    assert 'aria-describedby="id_name_helptext id_name_error"' in html
    assert '<fieldset aria-describedby="id_kinds_error"><legend' in html
    assert "✗ &lt;b&gt; does not fit" in html
    assert "(Hidden field version) Enter a whole number." in html
    assert html.count('name="version"') == 1
    assert html.count('class="form-check"') == 1
    assert "errorlist" not in html


def test_a_field_that_a_page_places_is_drawn_by_the_same_template():
    form = Sample()
    assert str(form["name"].as_field_group()).strip() in str(form)


@pytest.mark.parametrize("name", ["fleet-policy", "workload-new", "plan-new", "calibration-new"])
def test_each_form_of_a_page_carries_the_token_and_its_fields(sign_in, cast, fleet, name):
    page = sign_in(cast.root).get(reverse(name, args=[fleet.slug]))
    html = page.content.decode()
    posts = html.count('method="post"')
    assert posts >= 1
    assert html.count('name="csrfmiddlewaretoken"') == posts
    for field in page.context["form"]:
        assert f'name="{field.html_name}"' in html
