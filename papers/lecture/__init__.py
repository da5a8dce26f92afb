"""The lecture's laboratory: defences side by side, observers of trainings, federated rounds."""
