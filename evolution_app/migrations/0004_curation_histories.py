"""Refuse changes to comments as well, and to reviews again: SQLite rebuilt their table, and with it the trigger was gone."""

from django.db import migrations

TABLES = ("review", "entrycomment")


def add_triggers(apps, schema_editor):
    is_postgres = schema_editor.connection.vendor == "postgresql"
    for name in TABLES:
        table = f"evolution_app_{name}"
        action = (
            "FOR EACH ROW EXECUTE FUNCTION foundry_refuse_change()"
            if is_postgres
            else f"BEGIN SELECT RAISE(ABORT, 'rows of {table} are never changed'); END"
        )
        drop_trigger(schema_editor, name)
        schema_editor.execute(
            f"CREATE TRIGGER {name}_append_only BEFORE UPDATE ON {table} {action}"
        )


def drop_trigger(schema_editor, name):
    where = f" ON evolution_app_{name}" if schema_editor.connection.vendor == "postgresql" else ""
    schema_editor.execute(f"DROP TRIGGER IF EXISTS {name}_append_only{where}")


class Migration(migrations.Migration):
    dependencies = [("evolution_app", "0003_curation")]
    operations = [
        migrations.RunPython(
            add_triggers, lambda apps, editor: drop_trigger(editor, "entrycomment")
        )
    ]
