"""Files that are complete or absent: atomic writes, folders by descriptor, parts, digests."""
