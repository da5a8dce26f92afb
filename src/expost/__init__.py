"""expost: how much one released model gives each training row away."""

from expost._neighbours import neighbours
