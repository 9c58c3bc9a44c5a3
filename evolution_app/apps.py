from django.apps import AppConfig


class EvolutionAppConfig(AppConfig):
    name = "evolution_app"
    verbose_name = "Kernel Foundry"
    default_auto_field = "django.db.models.BigAutoField"
