"""Erasure: a model with the law of a release without some rows, and its certificate."""

from typing import TYPE_CHECKING

from expost._lazy import importer

if TYPE_CHECKING:
    from expost.erasure.certificate import Certificate, Erasure, Record

__all__ = ["Certificate", "Erasure", "Record"]

__getattr__ = importer(
    "expost.erasure",
    {"Certificate": "certificate", "Erasure": "certificate", "Record": "certificate"},
)
