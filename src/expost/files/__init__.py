"""Files that are whole or absent: atomic writes, folders by descriptor, parts, digests."""
