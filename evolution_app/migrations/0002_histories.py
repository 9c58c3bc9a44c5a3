"""Let the database itself refuse changes to rows of a history."""

from django.db import migrations

TABLES = ("auditevent", "entryuse", "entryversion", "evidence", "review", "runevent", "runnote")

POSTGRES_FUNCTION = """
CREATE OR REPLACE FUNCTION foundry_refuse_change() RETURNS trigger AS $$
BEGIN RAISE EXCEPTION 'rows of % are never changed', TG_TABLE_NAME; END
$$ LANGUAGE plpgsql
"""


def add_triggers(apps, schema_editor):
    is_postgres = schema_editor.connection.vendor == "postgresql"
    if is_postgres:
        # No parameters: the percent sign is PL/pgSQL's.
        schema_editor.execute(POSTGRES_FUNCTION, params=None)
    for name in TABLES:
        table = f"evolution_app_{name}"
        action = (
            "FOR EACH ROW EXECUTE FUNCTION foundry_refuse_change()"
            if is_postgres
            else f"BEGIN SELECT RAISE(ABORT, 'rows of {table} are never changed'); END"
        )
        schema_editor.execute(
            f"CREATE TRIGGER {name}_append_only BEFORE UPDATE ON {table} {action}"
        )


def drop_triggers(apps, schema_editor):
    is_postgres = schema_editor.connection.vendor == "postgresql"
    for name in TABLES:
        where = f" ON evolution_app_{name}" if is_postgres else ""
        schema_editor.execute(f"DROP TRIGGER {name}_append_only{where}")
    if is_postgres:
        schema_editor.execute("DROP FUNCTION foundry_refuse_change()")


class Migration(migrations.Migration):
    dependencies = [("evolution_app", "0001_first")]
    operations = [migrations.RunPython(add_triggers, drop_triggers)]
