"""Reports that may be published, and what they state about a row."""

from expost.mechanisms.publishing import PublishingBudget

__all__ = ["PublishingBudget"]
