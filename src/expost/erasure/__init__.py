"""Erasure: a model with the law of a release without some rows, and its certificate."""

from expost._lazy import importer

__all__ = ["Certificate", "Erasure", "Record", "forget"]

__getattr__ = importer(
    __name__,
    {
        "Certificate": "certificate",
        "Erasure": "certificate",
        "Record": "certificate",
        "forget": "forget",
    },
)
