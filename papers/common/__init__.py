"""What all reproductions share: claims, figures, their page and their command."""
