"""Operators' view of the tables; histories are read only."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.http import HttpRequest

from evolution_app import models

if TYPE_CHECKING:
    Admin = admin.ModelAdmin[Any]
    AccountsAdmin = UserAdmin[models.User]
else:  # the classes themselves cannot be subscripted
    Admin, AccountsAdmin = admin.ModelAdmin, UserAdmin


class ReadOnly:
    """Mixed into an admin whose rows are only looked at here."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(models.User)
class AccountAdmin(AccountsAdmin):
    list_display = ("username", "role", "is_active", "last_login")
    fieldsets = (*(UserAdmin.fieldsets or ()), ("Kernel Foundry", {"fields": ("role", "theme")}))


@admin.register(models.Task)
class TaskAdmin(ReadOnly, Admin):
    list_display = ("id", "name", "owner", "track", "visibility", "created_at")
    search_fields = ("name",)


@admin.register(models.Run)
class RunAdmin(ReadOnly, Admin):
    list_display = ("id", "task", "state", "runner", "lease_until", "fence")
    list_filter = ("state",)


@admin.register(models.Runner)
class RunnerAdmin(ReadOnly, Admin):
    list_display = ("name", "device", "sandbox", "heartbeat_at", "stopped_at")


@admin.register(models.ExperienceEntry)
class ExperienceEntryAdmin(ReadOnly, Admin):
    list_display = ("id", "current", "state", "nominated_by", "changed_at")
    list_filter = ("state",)


@admin.register(models.AuditEvent)
class AuditEventAdmin(ReadOnly, Admin):
    list_display = ("id", "created_at", "actor_name", "verb", "object_type", "object_name")
    list_filter = ("verb",)
