"""Entries of the project were called approved by the outcome of a run alone: they are checked, and nobody confirmed them."""

from django.db import migrations


def say_checked(apps, schema_editor):
    entry = apps.get_model("evolution_app", "ExperienceEntry")
    shipped = entry.objects.filter(state="approved", nominated_by=None)
    shipped.exclude(
        reviews__decision__in=("approve", "edit_and_approve"), reviews__undone_by=None
    ).update(state="checked")


def say_approved(apps, schema_editor):
    apps.get_model("evolution_app", "ExperienceEntry").objects.filter(state="checked").update(
        state="approved"
    )


class Migration(migrations.Migration):
    dependencies = [("evolution_app", "0005_checked_entries")]
    operations = [migrations.RunPython(say_checked, say_approved)]
