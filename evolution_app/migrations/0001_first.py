# ruff: noqa: E501

import django.contrib.auth.models
import django.contrib.auth.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import evolution_app.models.library
import gpu_runner.core.entries
import gpu_runner.core.verdicts


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        migrations.CreateModel(
            name="Candidate",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.PositiveIntegerField()),
                ("generation", models.PositiveIntegerField(default=0)),
                (
                    "origin",
                    models.CharField(
                        help_text="compiler:default, rewrite:fuse, model:NAME, person",
                        max_length=80,
                    ),
                ),
                (
                    "move",
                    models.CharField(
                        blank=True, help_text="what was changed, one line", max_length=300
                    ),
                ),
                ("plan", models.CharField(blank=True, max_length=80)),
                ("predicted_gain", models.FloatField(help_text="ratio over the parent", null=True)),
                (
                    "entries",
                    models.JSONField(
                        default=list, help_text="uids of library entries that were shown"
                    ),
                ),
                ("arm", models.CharField(blank=True, max_length=40)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "queued"),
                            ("evaluating", "evaluating"),
                            ("finished", "finished"),
                            ("unevaluated", "unevaluated"),
                            ("abandoned", "abandoned"),
                        ],
                        default=gpu_runner.core.verdicts.State["QUEUED"],
                        max_length=12,
                    ),
                ),
                (
                    "stage",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("static", "static"),
                            ("load", "load"),
                            ("compile", "compile"),
                            ("probe", "probe"),
                            ("correctness", "correctness"),
                            ("genuineness", "genuineness"),
                            ("timing", "timing"),
                            ("profile", "profile"),
                        ],
                        help_text="the gate it has reached while evaluating",
                        max_length=12,
                    ),
                ),
                (
                    "verdict",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("correct", "correct"),
                            ("incorrect", "incorrect"),
                            ("invalid", "invalid"),
                            ("compile_error", "compile error"),
                            ("runtime_error", "runtime error"),
                            ("out_of_memory", "out of memory"),
                            ("timeout", "timeout"),
                            ("cheating", "cheating"),
                        ],
                        max_length=16,
                    ),
                ),
                ("kind", models.CharField(blank=True, max_length=40)),
                (
                    "fidelity",
                    models.CharField(
                        blank=True,
                        choices=[("measured", "measured"), ("modelled", "modelled")],
                        max_length=10,
                    ),
                ),
                (
                    "verified_at",
                    models.CharField(
                        blank=True, choices=[("full", "full"), ("probe", "probe")], max_length=6
                    ),
                ),
                ("speedup", models.FloatField(help_text="eager time / candidate time", null=True)),
                ("speedup_low", models.FloatField(null=True)),
                ("speedup_high", models.FloatField(null=True)),
                (
                    "speedup_compile",
                    models.FloatField(help_text="torch.compile time / candidate time", null=True),
                ),
                (
                    "speedup_user",
                    models.FloatField(
                        help_text="the owner's baseline time / candidate time", null=True
                    ),
                ),
                ("device_us", models.FloatField(null=True)),
                (
                    "lead",
                    models.CharField(
                        blank=True, help_text="the leading finding's title", max_length=300
                    ),
                ),
                (
                    "setbacks",
                    models.PositiveSmallIntegerField(
                        default=0, help_text="how often we, not it, failed"
                    ),
                ),
                ("setback", models.TextField(blank=True, help_text="our latest failure on it")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["run_id", "number"],
            },
        ),
        migrations.CreateModel(
            name="Hint",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("group", models.CharField(max_length=100)),
                ("message", models.JSONField()),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name="Island",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.PositiveSmallIntegerField(help_text="from 0, in ring order")),
                (
                    "strategy",
                    models.CharField(
                        blank=True, help_text="the lens its proposals look through", max_length=80
                    ),
                ),
                ("description", models.TextField(blank=True)),
                ("settings", models.JSONField(default=dict)),
            ],
            options={
                "ordering": ["run_id", "number"],
            },
        ),
        migrations.CreateModel(
            name="SourceText",
            fields=[
                ("digest", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("text", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="User",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("password", models.CharField(max_length=128, verbose_name="password")),
                (
                    "last_login",
                    models.DateTimeField(blank=True, null=True, verbose_name="last login"),
                ),
                (
                    "is_superuser",
                    models.BooleanField(
                        default=False,
                        help_text="Designates that this user has all permissions without explicitly assigning them.",
                        verbose_name="superuser status",
                    ),
                ),
                (
                    "username",
                    models.CharField(
                        error_messages={"unique": "A user with that username already exists."},
                        help_text="Required. 150 characters or fewer. Letters, digits and @/./+/-/_ only.",
                        max_length=150,
                        unique=True,
                        validators=[django.contrib.auth.validators.UnicodeUsernameValidator()],
                        verbose_name="username",
                    ),
                ),
                (
                    "first_name",
                    models.CharField(blank=True, max_length=150, verbose_name="first name"),
                ),
                (
                    "last_name",
                    models.CharField(blank=True, max_length=150, verbose_name="last name"),
                ),
                (
                    "email",
                    models.EmailField(blank=True, max_length=254, verbose_name="email address"),
                ),
                (
                    "is_staff",
                    models.BooleanField(
                        default=False,
                        help_text="Designates whether the user can log into this admin site.",
                        verbose_name="staff status",
                    ),
                ),
                (
                    "is_active",
                    models.BooleanField(
                        default=True,
                        help_text="Designates whether this user should be treated as active. Unselect this instead of deleting accounts.",
                        verbose_name="active",
                    ),
                ),
                (
                    "date_joined",
                    models.DateTimeField(
                        default=django.utils.timezone.now, verbose_name="date joined"
                    ),
                ),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("viewer", "Viewer"),
                            ("submitter", "Submitter"),
                            ("expert", "Expert"),
                            ("operator", "Operator"),
                        ],
                        default="viewer",
                        max_length=16,
                    ),
                ),
                ("is_local_owner", models.BooleanField(default=False)),
                (
                    "theme",
                    models.CharField(
                        choices=[("auto", "Auto"), ("light", "Light"), ("dark", "Dark")],
                        default="auto",
                        max_length=8,
                    ),
                ),
                (
                    "groups",
                    models.ManyToManyField(
                        blank=True,
                        help_text="The groups this user belongs to. A user will get all permissions granted to each of their groups.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.group",
                        verbose_name="groups",
                    ),
                ),
                (
                    "user_permissions",
                    models.ManyToManyField(
                        blank=True,
                        help_text="Specific permissions for this user.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.permission",
                        verbose_name="user permissions",
                    ),
                ),
            ],
            managers=[
                ("objects", django.contrib.auth.models.UserManager()),
            ],
        ),
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=80)),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField(null=True)),
                ("last_used_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="api_tokens",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="AuditEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("actor_name", models.CharField(max_length=150)),
                ("verb", models.CharField(max_length=60)),
                ("object_type", models.CharField(max_length=60)),
                ("object_id", models.CharField(max_length=40)),
                ("object_name", models.CharField(max_length=200)),
                ("before", models.JSONField(null=True)),
                ("after", models.JSONField(null=True)),
                ("why", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "actor",
                    models.ForeignKey(
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="CandidateParent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("position", models.PositiveSmallIntegerField()),
                (
                    "candidate",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="parent_links",
                        to="evolution_app.candidate",
                    ),
                ),
                (
                    "parent",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="child_links",
                        to="evolution_app.candidate",
                    ),
                ),
            ],
            options={
                "ordering": ["candidate_id", "position"],
            },
        ),
        migrations.AddField(
            model_name="candidate",
            name="parents",
            field=models.ManyToManyField(
                related_name="children",
                through="evolution_app.CandidateParent",
                through_fields=("candidate", "parent"),
                to="evolution_app.candidate",
            ),
        ),
        migrations.CreateModel(
            name="EntryVersion",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.PositiveIntegerField(help_text="from 1")),
                ("title", models.CharField(max_length=200)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("technique", "technique"),
                            ("anti_pattern", "anti pattern"),
                            ("symptom", "symptom"),
                            ("demonstration", "demonstration"),
                        ],
                        max_length=16,
                    ),
                ),
                ("content", models.JSONField(help_text="core.entries.EntryContent")),
                (
                    "note",
                    models.CharField(blank=True, help_text="why it was changed", max_length=500),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "author",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["entry_id", "number"],
            },
        ),
        migrations.CreateModel(
            name="Evaluation",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("document", models.JSONField(help_text="core.evaluation.Evaluation")),
                (
                    "verdict",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("correct", "correct"),
                            ("incorrect", "incorrect"),
                            ("invalid", "invalid"),
                            ("compile_error", "compile error"),
                            ("runtime_error", "runtime error"),
                            ("out_of_memory", "out of memory"),
                            ("timeout", "timeout"),
                            ("cheating", "cheating"),
                        ],
                        max_length=16,
                    ),
                ),
                ("kind", models.CharField(blank=True, max_length=40)),
                (
                    "fidelity",
                    models.CharField(
                        blank=True,
                        choices=[("measured", "measured"), ("modelled", "modelled")],
                        max_length=10,
                    ),
                ),
                ("device", models.CharField(max_length=120)),
                (
                    "is_published",
                    models.BooleanField(
                        default=False,
                        help_text="timed once more after selection: the figures to publish",
                    ),
                ),
                ("evaluator_version", models.PositiveSmallIntegerField(default=1)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "candidate",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="evaluations",
                        to="evolution_app.candidate",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="ExperienceEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "uid",
                    models.CharField(
                        default=evolution_app.models.library.new_uid,
                        editable=False,
                        max_length=32,
                        unique=True,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("draft", "draft"),
                            ("nominated", "nominated"),
                            ("verified", "verified"),
                            ("approved", "approved"),
                            ("rejected", "rejected"),
                            ("retired", "retired"),
                        ],
                        default=gpu_runner.core.entries.EntryState["DRAFT"],
                        max_length=10,
                    ),
                ),
                (
                    "visibility",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("private", "Private"),
                            ("shared", "shared with experts"),
                            ("public", "Public"),
                        ],
                        max_length=8,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("changed_at", models.DateTimeField(auto_now=True)),
                (
                    "approved",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="evolution_app.entryversion",
                    ),
                ),
                (
                    "candidate",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="nominations",
                        to="evolution_app.candidate",
                    ),
                ),
                (
                    "current",
                    models.ForeignKey(
                        help_text="the newest version",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="evolution_app.entryversion",
                    ),
                ),
                (
                    "merged_into",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="merged",
                        to="evolution_app.experienceentry",
                    ),
                ),
                (
                    "nominated_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="nominations",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "experience entries",
                "ordering": ["-id"],
            },
        ),
        migrations.AddField(
            model_name="entryversion",
            name="entry",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="versions",
                to="evolution_app.experienceentry",
            ),
        ),
        migrations.CreateModel(
            name="Finding",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("position", models.PositiveSmallIntegerField(help_text="0 leads")),
                (
                    "stage",
                    models.CharField(
                        choices=[
                            ("static", "static"),
                            ("load", "load"),
                            ("compile", "compile"),
                            ("probe", "probe"),
                            ("correctness", "correctness"),
                            ("genuineness", "genuineness"),
                            ("timing", "timing"),
                            ("profile", "profile"),
                        ],
                        max_length=12,
                    ),
                ),
                ("kind", models.CharField(max_length=60)),
                (
                    "severity",
                    models.CharField(
                        choices=[
                            ("gate", "gate"),
                            ("warning", "warning"),
                            ("hint", "hint"),
                            ("note", "note"),
                        ],
                        max_length=8,
                    ),
                ),
                (
                    "source",
                    models.CharField(
                        choices=[
                            ("judge", "judge"),
                            ("hook", "hook"),
                            ("player", "player"),
                            ("compiler", "compiler"),
                            ("interpreter", "interpreter"),
                            ("model", "model"),
                            ("runner", "runner"),
                        ],
                        max_length=12,
                    ),
                ),
                ("title", models.CharField(max_length=300)),
                ("evidence", models.JSONField(default=dict)),
                (
                    "location",
                    models.JSONField(default=dict, help_text="kernel, line, tensor, region"),
                ),
                ("suggestion", models.CharField(blank=True, max_length=1000)),
                ("entries", models.JSONField(default=list)),
                (
                    "is_right",
                    models.BooleanField(
                        help_text="an expert's judgement; None: not judged", null=True
                    ),
                ),
                ("judged_at", models.DateTimeField(null=True)),
                (
                    "evaluation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="findings",
                        to="evolution_app.evaluation",
                    ),
                ),
                (
                    "judged_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["evaluation_id", "position"],
            },
        ),
        migrations.AddField(
            model_name="candidate",
            name="island",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="candidates",
                to="evolution_app.island",
            ),
        ),
        migrations.CreateModel(
            name="Review",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "decision",
                    models.CharField(
                        choices=[
                            ("approve", "Approve"),
                            ("edit_and_approve", "edit and approve"),
                            ("request_changes", "request changes"),
                            ("reject", "Reject"),
                            ("retire", "Retire"),
                            ("restore", "Restore"),
                            ("merge", "Merge"),
                        ],
                        max_length=16,
                    ),
                ),
                ("reason", models.TextField(blank=True)),
                (
                    "waiver",
                    models.TextField(
                        blank=True,
                        help_text="why a rule was waived: missing evidence, or the reviewer's own nomination",
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "entry",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="reviews",
                        to="evolution_app.experienceentry",
                    ),
                ),
                (
                    "reviewer",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="reviews",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="reviews",
                        to="evolution_app.entryversion",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="Run",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "queued"),
                            ("running", "running"),
                            ("pausing", "pausing"),
                            ("paused", "paused"),
                            ("stopping", "stopping"),
                            ("finished", "finished"),
                            ("cancelled", "cancelled"),
                            ("failed", "failed"),
                        ],
                        default=gpu_runner.core.verdicts.RunState["QUEUED"],
                        max_length=12,
                    ),
                ),
                (
                    "wanted",
                    models.CharField(
                        choices=[
                            ("queued", "queued"),
                            ("running", "running"),
                            ("pausing", "pausing"),
                            ("paused", "paused"),
                            ("stopping", "stopping"),
                            ("finished", "finished"),
                            ("cancelled", "cancelled"),
                            ("failed", "failed"),
                        ],
                        default=gpu_runner.core.verdicts.RunState["RUNNING"],
                        max_length=12,
                    ),
                ),
                (
                    "stop_reason",
                    models.TextField(
                        blank=True, help_text="why it is over, paused or back in the queue"
                    ),
                ),
                ("options", models.JSONField(help_text="core.task.RunSpec without the task")),
                (
                    "spent",
                    models.JSONField(
                        default=dict, help_text="evaluations, tokens, money_usd, gpu_s, wall_s"
                    ),
                ),
                (
                    "last_seq",
                    models.PositiveBigIntegerField(default=0, help_text="of its newest event"),
                ),
                (
                    "last_candidate",
                    models.PositiveIntegerField(
                        default=0, help_text="the newest candidate's number"
                    ),
                ),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                (
                    "fence",
                    models.PositiveBigIntegerField(
                        default=0, help_text="raised by every claim; writers must know it"
                    ),
                ),
                (
                    "lost_claims",
                    models.PositiveSmallIntegerField(
                        default=0, help_text="runners lost since a candidate was last finished"
                    ),
                ),
                (
                    "device",
                    models.CharField(
                        blank=True, help_text="of the runner that worked on it last", max_length=120
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "best",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="evolution_app.candidate",
                    ),
                ),
                (
                    "started_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="runs",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="ModelCall",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("island", models.PositiveSmallIntegerField(null=True)),
                ("model", models.CharField(max_length=120)),
                ("role", models.CharField(max_length=60)),
                ("prompt", models.TextField()),
                ("reply", models.TextField()),
                ("outcome", models.CharField(max_length=80)),
                ("tokens_in", models.PositiveIntegerField(null=True)),
                ("tokens_out", models.PositiveIntegerField(null=True)),
                ("money_usd", models.FloatField(null=True)),
                ("seconds", models.FloatField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "candidate",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="model_calls",
                        to="evolution_app.candidate",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="model_calls",
                        to="evolution_app.run",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.AddField(
            model_name="island",
            name="run",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="islands",
                to="evolution_app.run",
            ),
        ),
        migrations.CreateModel(
            name="EntryUse",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "candidate",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="entry_uses",
                        to="evolution_app.candidate",
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="uses",
                        to="evolution_app.entryversion",
                    ),
                ),
                (
                    "entry",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="uses",
                        to="evolution_app.experienceentry",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="entry_uses",
                        to="evolution_app.run",
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="candidate",
            name="run",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="candidates",
                to="evolution_app.run",
            ),
        ),
        migrations.CreateModel(
            name="RunEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("seq", models.PositiveBigIntegerField()),
                ("kind", models.CharField(max_length=40)),
                ("payload", models.JSONField(default=dict)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="events",
                        to="evolution_app.run",
                    ),
                ),
            ],
            options={
                "ordering": ["run_id", "seq"],
            },
        ),
        migrations.CreateModel(
            name="Runner",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(help_text="host and process id", max_length=120)),
                ("host", models.CharField(max_length=120)),
                (
                    "place",
                    models.CharField(
                        blank=True,
                        help_text="boot and pid namespace in which `pid` means something",
                        max_length=80,
                    ),
                ),
                ("pid", models.PositiveIntegerField()),
                (
                    "device",
                    models.CharField(
                        blank=True, help_text="empty until the pool is open", max_length=120
                    ),
                ),
                ("device_kind", models.CharField(blank=True, max_length=16)),
                ("fingerprint", models.JSONField(default=dict)),
                ("sandbox", models.CharField(help_text="bwrap or none", max_length=16)),
                ("slots", models.PositiveSmallIntegerField(default=1)),
                ("version", models.CharField(max_length=40)),
                (
                    "problem",
                    models.TextField(blank=True, help_text="why it cannot work, for the pages"),
                ),
                ("started_at", models.DateTimeField(auto_now_add=True)),
                ("heartbeat_at", models.DateTimeField()),
                ("stopped_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [models.Index(fields=["heartbeat_at"], name="runner_by_heartbeat")],
            },
        ),
        migrations.AddField(
            model_name="run",
            name="runner",
            field=models.ForeignKey(
                blank=True,
                help_text="who holds the lease",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="runs",
                to="evolution_app.runner",
            ),
        ),
        migrations.CreateModel(
            name="RunNote",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("kind", models.CharField(max_length=40)),
                ("payload", models.JSONField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="run_notes",
                        to="evolution_app.run",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="SignInToken",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sign_in_tokens",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="candidate",
            name="source",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="candidates",
                to="evolution_app.sourcetext",
            ),
        ),
        migrations.CreateModel(
            name="Steering",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("island", models.PositiveSmallIntegerField(default=0)),
                ("hint", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "taken_at",
                    models.DateTimeField(
                        blank=True, help_text="when the runner read it", null=True
                    ),
                ),
                (
                    "author",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "parent",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="evolution_app.candidate",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="steerings",
                        to="evolution_app.run",
                    ),
                ),
                (
                    "source",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="evolution_app.sourcetext",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Task",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=120)),
                (
                    "track",
                    models.CharField(
                        choices=[
                            ("own_kernels", "own kernels"),
                            ("library_allowed", "library allowed"),
                        ],
                        default=gpu_runner.core.verdicts.Track["OWN_KERNELS"],
                        max_length=20,
                    ),
                ),
                (
                    "precision",
                    models.CharField(
                        choices=[("reference", "reference"), ("ieee", "ieee"), ("tf32", "tf32")],
                        default=gpu_runner.core.verdicts.Precision["REFERENCE"],
                        max_length=12,
                    ),
                ),
                (
                    "target",
                    models.CharField(
                        default="h200", help_text="the GPU of modelled speed", max_length=20
                    ),
                ),
                (
                    "visibility",
                    models.CharField(
                        choices=[
                            ("private", "Private"),
                            ("shared", "shared with experts"),
                            ("public", "Public"),
                        ],
                        default="private",
                        max_length=8,
                    ),
                ),
                (
                    "suite",
                    models.CharField(
                        blank=True,
                        help_text="path in the built-in suite: level2/mlp_block; else empty",
                        max_length=120,
                    ),
                ),
                (
                    "key",
                    models.CharField(
                        db_index=True, help_text="equal for interchangeable tasks", max_length=24
                    ),
                ),
                (
                    "report",
                    models.JSONField(
                        help_text="core.task_report.TaskReport, once inspected", null=True
                    ),
                ),
                ("notes", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "baseline_source",
                    models.ForeignKey(
                        blank=True,
                        help_text="the owner's own ModelNew: a named baseline and first candidate",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="evolution_app.sourcetext",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="tasks",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "source",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="evolution_app.sourcetext",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.AddField(
            model_name="run",
            name="task",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="runs",
                to="evolution_app.task",
            ),
        ),
        migrations.AddField(
            model_name="experienceentry",
            name="task",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="entries",
                to="evolution_app.task",
            ),
        ),
        migrations.CreateModel(
            name="Evidence",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("nomination", "the pair it was nominated with"),
                            ("verification", "a fresh run for this entry"),
                        ],
                        max_length=12,
                    ),
                ),
                ("device", models.CharField(max_length=120)),
                (
                    "fidelity",
                    models.CharField(
                        choices=[("measured", "measured"), ("modelled", "modelled")], max_length=10
                    ),
                ),
                ("ratio", models.FloatField(help_text="time before / time after")),
                ("low", models.FloatField(null=True)),
                ("high", models.FloatField(null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "after",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="evolution_app.candidate",
                    ),
                ),
                (
                    "before",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="evolution_app.candidate",
                    ),
                ),
                (
                    "entry",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="evidence",
                        to="evolution_app.experienceentry",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="evolution_app.task",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "evidence",
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="TaskShare",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "shared_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="shares",
                        to="evolution_app.task",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="task_shares",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="task",
            name="shared_with",
            field=models.ManyToManyField(
                related_name="+",
                through="evolution_app.TaskShare",
                through_fields=("task", "user"),
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddConstraint(
            model_name="user",
            constraint=models.CheckConstraint(
                condition=models.Q(("role__in", ["viewer", "submitter", "expert", "operator"])),
                name="user_role_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="user",
            constraint=models.UniqueConstraint(
                condition=models.Q(("is_local_owner", True)),
                fields=("is_local_owner",),
                name="one_local_owner",
            ),
        ),
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(fields=["object_type", "object_id", "id"], name="audit_by_object"),
        ),
        migrations.AddConstraint(
            model_name="candidateparent",
            constraint=models.UniqueConstraint(
                fields=("candidate", "position"), name="parent_position_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="candidateparent",
            constraint=models.CheckConstraint(
                condition=models.Q(("position__lte", 1)), name="parents_at_most_two"
            ),
        ),
        migrations.AddConstraint(
            model_name="candidateparent",
            constraint=models.CheckConstraint(
                condition=models.Q(("candidate", models.F("parent")), _negated=True),
                name="parent_is_another",
            ),
        ),
        migrations.AddIndex(
            model_name="evaluation",
            index=models.Index(fields=["verdict", "kind"], name="evaluation_by_verdict"),
        ),
        migrations.AddConstraint(
            model_name="entryversion",
            constraint=models.UniqueConstraint(
                fields=("entry", "number"), name="entry_version_once"
            ),
        ),
        migrations.AddIndex(
            model_name="finding",
            index=models.Index(fields=["kind", "is_right"], name="finding_by_kind"),
        ),
        migrations.AddConstraint(
            model_name="finding",
            constraint=models.UniqueConstraint(
                fields=("evaluation", "position"), name="finding_position_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="island",
            constraint=models.UniqueConstraint(
                fields=("run", "number"), name="island_numbered_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="entryuse",
            constraint=models.UniqueConstraint(
                fields=("entry", "candidate"), name="entry_used_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="runevent",
            constraint=models.UniqueConstraint(fields=("run", "seq"), name="event_seq_once"),
        ),
        migrations.AddIndex(
            model_name="runnote",
            index=models.Index(fields=["run", "kind", "id"], name="note_by_kind"),
        ),
        migrations.AddIndex(
            model_name="candidate",
            index=models.Index(fields=["run", "-speedup"], name="candidate_by_speedup"),
        ),
        migrations.AddIndex(
            model_name="candidate",
            index=models.Index(fields=["run", "island", "number"], name="candidate_by_island"),
        ),
        migrations.AddConstraint(
            model_name="candidate",
            constraint=models.UniqueConstraint(
                fields=("run", "number"), name="candidate_numbered_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="candidate",
            constraint=models.CheckConstraint(
                condition=models.Q(("number__gte", 1)), name="candidate_numbered_from_1"
            ),
        ),
        migrations.AddConstraint(
            model_name="candidate",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("state__in", ["queued", "evaluating", "finished", "unevaluated", "abandoned"])
                ),
                name="candidate_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="candidate",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "finished"), models.Q(("verdict", ""), _negated=True)),
                    models.Q(
                        models.Q(("state", "finished"), _negated=True),
                        ("kind", ""),
                        ("verdict", ""),
                    ),
                    _connector="OR",
                ),
                name="candidate_verdict_if_finished",
            ),
        ),
        migrations.AddConstraint(
            model_name="candidate",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", ""), ("verdict", "")),
                    models.Q(("verdict", "correct"), ("kind", "")),
                    models.Q(
                        models.Q(("verdict", "correct"), _negated=True),
                        models.Q(("kind", ""), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="candidate_kind_if_wrong",
            ),
        ),
        migrations.AddConstraint(
            model_name="candidate",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("verdict", "correct"),
                    models.Q(
                        ("device_us", None),
                        ("speedup", None),
                        ("speedup_compile", None),
                        ("speedup_high", None),
                        ("speedup_low", None),
                        ("speedup_user", None),
                    ),
                    _connector="OR",
                ),
                name="candidate_times_if_correct",
            ),
        ),
        migrations.AddConstraint(
            model_name="candidate",
            constraint=models.CheckConstraint(
                condition=models.Q(("stage", ""), ("state", "evaluating"), _connector="OR"),
                name="candidate_stage_while_evaluating",
            ),
        ),
        migrations.AddConstraint(
            model_name="steering",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("source__isnull", False),
                    models.Q(("hint", ""), _negated=True),
                    _connector="OR",
                ),
                name="steering_says_something",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["state", "id"], name="run_by_state"),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        [
                            "queued",
                            "running",
                            "pausing",
                            "paused",
                            "stopping",
                            "finished",
                            "cancelled",
                            "failed",
                        ],
                    )
                ),
                name="run_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state__in", ["finished", "cancelled", "failed"]), _negated=True),
                    models.Q(("lease_until", None), ("runner", None)),
                    _connector="OR",
                ),
                name="run_over_has_no_lease",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("lease_until", None), ("runner", None)),
                    models.Q(("lease_until__isnull", False), ("runner__isnull", False)),
                    _connector="OR",
                ),
                name="run_lease_is_whole",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("finished_at__isnull", False),
                        ("state__in", ["finished", "cancelled", "failed"]),
                    ),
                    models.Q(
                        models.Q(("state__in", ["finished", "cancelled", "failed"]), _negated=True),
                        ("finished_at", None),
                    ),
                    _connector="OR",
                ),
                name="run_over_is_dated",
            ),
        ),
        migrations.AddConstraint(
            model_name="experienceentry",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        ["draft", "nominated", "verified", "approved", "rejected", "retired"],
                    )
                ),
                name="entry_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="experienceentry",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "approved"), _negated=True),
                    ("approved__isnull", False),
                    _connector="OR",
                ),
                name="entry_approved_has_version",
            ),
        ),
        migrations.AddConstraint(
            model_name="experienceentry",
            constraint=models.CheckConstraint(
                condition=models.Q(("merged_into", None), ("state", "retired"), _connector="OR"),
                name="entry_merged_is_retired",
            ),
        ),
        migrations.AddConstraint(
            model_name="evidence",
            constraint=models.CheckConstraint(
                condition=models.Q(("ratio__gt", 0)), name="evidence_ratio_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="taskshare",
            constraint=models.UniqueConstraint(fields=("task", "user"), name="task_shared_once"),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(("visibility__in", ["private", "shared", "public"])),
                name="task_visibility_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(("track__in", ["own_kernels", "library_allowed"])),
                name="task_track_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(("precision__in", ["reference", "ieee", "tf32"])),
                name="task_precision_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(("name", ""), _negated=True), name="task_named"
            ),
        ),
    ]
