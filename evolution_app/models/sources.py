"""Submitted and proposed sources, each text kept once."""

import hashlib

from django.db import models


class SourceTextQuerySet(models.QuerySet["SourceText"]):
    def keep(self, text: str) -> "SourceText":
        """The row of this text, made if it is new. Safe when two processes keep the same text at once."""
        source, _ = self.get_or_create(digest=digest_of(text), defaults={"text": text})
        return source


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class SourceText(models.Model):
    """A source by the digest of its text; never changed, shared by all that have the same text."""

    digest = models.CharField(max_length=64, primary_key=True)
    text = models.TextField()

    objects = SourceTextQuerySet.as_manager()

    def __str__(self) -> str:
        return self.digest[:12]
