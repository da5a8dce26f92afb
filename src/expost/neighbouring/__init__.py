"""Leave-one-out minimisers and other neighbouring minimisers, each with a certified error."""
